//! Status codes and their phrases (RFC 9110 section 15, IANA HTTP Status Code Registry).
//!
//! Called by whoever answers a request or reads an answer.

/// A status code. Any number can be held, so that a backend's code passes through unharmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Status(
    /// From 100 to 599 in a message that may be sent.
    pub u16,
);

macro_rules! registry {
    ($($code:literal $name:ident $phrase:literal)*) => {
        impl Status {
            $(#[doc = concat!("`", $code, " ", $phrase, "`")] pub const $name: Status = Status($code);)*

            /// The phrase of the registry; empty for an unregistered code, which is a valid phrase.
            pub const fn reason(self) -> &'static str {
                match self.0 {
                    $($code => $phrase,)*
                    _ => "",
                }
            }
        }
    };
}

registry! {
    100 CONTINUE "Continue"
    101 SWITCHING_PROTOCOLS "Switching Protocols"
    102 PROCESSING "Processing"
    103 EARLY_HINTS "Early Hints"
    104 UPLOAD_RESUMPTION_SUPPORTED "Upload Resumption Supported"
    200 OK "OK"
    201 CREATED "Created"
    202 ACCEPTED "Accepted"
    203 NON_AUTHORITATIVE_INFORMATION "Non-Authoritative Information"
    204 NO_CONTENT "No Content"
    205 RESET_CONTENT "Reset Content"
    206 PARTIAL_CONTENT "Partial Content"
    207 MULTI_STATUS "Multi-Status"
    208 ALREADY_REPORTED "Already Reported"
    226 IM_USED "IM Used"
    300 MULTIPLE_CHOICES "Multiple Choices"
    301 MOVED_PERMANENTLY "Moved Permanently"
    302 FOUND "Found"
    303 SEE_OTHER "See Other"
    304 NOT_MODIFIED "Not Modified"
    305 USE_PROXY "Use Proxy"
    307 TEMPORARY_REDIRECT "Temporary Redirect"
    308 PERMANENT_REDIRECT "Permanent Redirect"
    400 BAD_REQUEST "Bad Request"
    401 UNAUTHORIZED "Unauthorized"
    402 PAYMENT_REQUIRED "Payment Required"
    403 FORBIDDEN "Forbidden"
    404 NOT_FOUND "Not Found"
    405 METHOD_NOT_ALLOWED "Method Not Allowed"
    406 NOT_ACCEPTABLE "Not Acceptable"
    407 PROXY_AUTHENTICATION_REQUIRED "Proxy Authentication Required"
    408 REQUEST_TIMEOUT "Request Timeout"
    409 CONFLICT "Conflict"
    410 GONE "Gone"
    411 LENGTH_REQUIRED "Length Required"
    412 PRECONDITION_FAILED "Precondition Failed"
    413 CONTENT_TOO_LARGE "Content Too Large"
    414 URI_TOO_LONG "URI Too Long"
    415 UNSUPPORTED_MEDIA_TYPE "Unsupported Media Type"
    416 RANGE_NOT_SATISFIABLE "Range Not Satisfiable"
    417 EXPECTATION_FAILED "Expectation Failed"
    421 MISDIRECTED_REQUEST "Misdirected Request"
    422 UNPROCESSABLE_CONTENT "Unprocessable Content"
    423 LOCKED "Locked"
    424 FAILED_DEPENDENCY "Failed Dependency"
    425 TOO_EARLY "Too Early"
    426 UPGRADE_REQUIRED "Upgrade Required"
    428 PRECONDITION_REQUIRED "Precondition Required"
    429 TOO_MANY_REQUESTS "Too Many Requests"
    431 REQUEST_HEADER_FIELDS_TOO_LARGE "Request Header Fields Too Large"
    451 UNAVAILABLE_FOR_LEGAL_REASONS "Unavailable For Legal Reasons"
    500 INTERNAL_SERVER_ERROR "Internal Server Error"
    501 NOT_IMPLEMENTED "Not Implemented"
    502 BAD_GATEWAY "Bad Gateway"
    503 SERVICE_UNAVAILABLE "Service Unavailable"
    504 GATEWAY_TIMEOUT "Gateway Timeout"
    505 HTTP_VERSION_NOT_SUPPORTED "HTTP Version Not Supported"
    506 VARIANT_ALSO_NEGOTIATES "Variant Also Negotiates"
    507 INSUFFICIENT_STORAGE "Insufficient Storage"
    508 LOOP_DETECTED "Loop Detected"
    510 NOT_EXTENDED "Not Extended"
    511 NETWORK_AUTHENTICATION_REQUIRED "Network Authentication Required"
}

impl Status {
    /// 1xx: another response follows.
    #[inline]
    pub const fn is_informational(self) -> bool {
        self.0 / 100 == 1
    }

    /// 2xx.
    #[inline]
    pub const fn is_success(self) -> bool {
        self.0 / 100 == 2
    }

    /// 4xx and 5xx.
    #[inline]
    pub const fn is_error(self) -> bool {
        matches!(self.0 / 100, 4 | 5)
    }

    /// Whether a response with this status has content at all: 1xx, 204 and 304 end with the head
    /// whatever their fields say (RFC 9112 section 6.3). The method counts too: HEAD never has content.
    #[inline]
    pub const fn has_body(self) -> bool {
        !(self.is_informational() || matches!(self.0, 204 | 304))
    }
}
