# A guestbook for any Rack server, for one: puma --bind "unix://$SOCKET" config.ru
require "cgi"
require "digest"
require "json"

# Entries live as long as the process: enough for an example, not for a guestbook.
class Guestbook
  def initialize
    @entries = []
    @lock = Mutex.new
  end

  def call(env)
    request = Rack::Request.new(env)
    case [request.request_method, request.path_info]
    when ["GET", "/"] then page
    when ["POST", "/"] then sign(request)
    when ["POST", "/digest"] then digest(request)
    when ["GET", "/stream"] then [200, { "Content-Type" => "text/plain" }, Lines.new]
    else [404, { "Content-Type" => "text/plain" }, ["nothing here\n"]]
    end
  end

  private

  def page
    entries = @lock.synchronize { @entries.map { |text| "<li>#{CGI.escapeHTML(text)}</li>" }.join }
    body = <<~HTML
      <!doctype html><html lang="en"><meta charset="utf-8"><title>Guestbook</title>
      <h1>Guestbook</h1><ul>#{entries}</ul>
      <form method="post"><input name="text" required> <button>Sign</button></form>
    HTML
    [200, { "Content-Type" => "text/html; charset=utf-8" }, [body]]
  end

  def sign(request)
    text = request.params["text"].to_s
    return [400, { "Content-Type" => "text/plain" }, ["the field text is missing\n"]] if text.empty?

    @lock.synchronize { @entries.push(text).shift(@entries.size > 100 ? 1 : 0) }
    [303, { "Location" => request.script_name + "/" }, []]
  end

  def digest(request)
    sha, length = Digest::SHA256.new, 0
    while (chunk = request.body.read(65_536))
      sha << chunk
      length += chunk.bytesize
    end
    [200, { "Content-Type" => "application/json" }, [JSON.generate(length: length, sha256: sha.hexdigest)]]
  end

  # A body of unknown length: it is sent in chunks.
  class Lines
    def each
      10.times { |number| yield "line #{number}\n" }
    end
  end
end

run Guestbook.new
