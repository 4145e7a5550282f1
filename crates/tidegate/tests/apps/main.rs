//! Real applications behind the server, each started by the settings file in `examples/apps` that the
//! documentation shows: PHP by php-cgi and php-fpm, WordPress with MariaDB, Ruby on Puma, Python on uvicorn
//! with a WebSocket, a Java servlet with a JDBC pool on Tomcat, CGI programs in C and Perl.
//!
//! Where one is not installed the test says so and passes on a contributor's machine; with `CI` set it
//! fails. `cargo xtask tools` installs them.

mod cgi;
mod java;
mod php;
mod python;
mod ruby;
mod site;
mod starvation;
mod wordpress;
