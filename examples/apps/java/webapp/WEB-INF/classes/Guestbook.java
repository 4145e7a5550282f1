import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import java.io.IOException;
import java.io.PrintWriter;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import javax.naming.InitialContext;
import javax.naming.NamingException;
import javax.sql.DataSource;

/** A guestbook in a database, reached through the container's pool of connections (jdbc/guestbook). */
public class Guestbook extends HttpServlet {
    private DataSource pool;

    @Override
    public void init() throws ServletException {
        try {
            pool = (DataSource) new InitialContext().lookup("java:comp/env/jdbc/guestbook");
            try (Connection connection = pool.getConnection(); var statement = connection.createStatement()) {
                statement.execute("CREATE TABLE IF NOT EXISTS entry "
                        + "(id INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text VARCHAR(1000))");
            }
        } catch (NamingException | SQLException error) {
            throw new ServletException(error);
        }
    }

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response)
            throws ServletException, IOException {
        Integer visits = (Integer) request.getSession().getAttribute("visits");
        visits = visits == null ? 1 : visits + 1;
        request.getSession().setAttribute("visits", visits);
        response.setContentType("text/html; charset=utf-8");
        PrintWriter out = response.getWriter();
        out.printf("<!doctype html><html lang=\"en\"><title>Guestbook</title><h1>Guestbook</h1>"
                + "<p>visit %d from %s over %s</p><ul>", visits, request.getRemoteAddr(), request.getScheme());
        try (Connection connection = pool.getConnection();
                PreparedStatement select = connection.prepareStatement("SELECT text FROM entry ORDER BY id");
                ResultSet rows = select.executeQuery()) {
            while (rows.next()) {
                out.printf("<li>%s</li>", escape(rows.getString(1)));
            }
        } catch (SQLException error) {
            throw new ServletException(error);
        }
        out.print("</ul><form method=\"post\"><input name=\"text\"> <button>Sign</button></form>");
    }

    @Override
    protected void doPost(HttpServletRequest request, HttpServletResponse response)
            throws ServletException, IOException {
        String text = request.getParameter("text");
        if (text == null || text.isEmpty()) {
            response.sendError(HttpServletResponse.SC_BAD_REQUEST, "the field text is missing");
            return;
        }
        try (Connection connection = pool.getConnection();
                PreparedStatement insert = connection.prepareStatement("INSERT INTO entry (text) VALUES (?)")) {
            insert.setString(1, text);
            insert.executeUpdate();
        } catch (SQLException error) {
            throw new ServletException(error);
        }
        response.sendRedirect(request.getRequestURI());
    }

    private static String escape(String text) {
        return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;");
    }
}
