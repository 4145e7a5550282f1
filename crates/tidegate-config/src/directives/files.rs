//! How files are found and served.

use crate::directive::{
    Apply, Children, Context, Directive, Inheritance, Kind, OFF, Property, any_or, one, one_or, some,
};
use crate::lower::inherit::{self, Inherited};
use crate::value::Value;

const EVERYWHERE: &[Context] = &[Context::Top, Context::Site, Context::Route];
const INSIDE: &[Context] = &[Context::Site, Context::Route];

pub(super) const DIRECTIVES: &[Directive] = &[
    Directive {
        arguments: &[one("path", Kind::File)],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| {
            if let Some(Value::Path(path)) = item.first() {
                route.root = Some(path.clone());
            }
        })),
        doc: "The folder that files are served from; it must exist. Nothing outside it is ever served, unless \
              `symlinks` lets links lead out of it.",
        example: "root \".\"",
        ..Directive::new("root", INSIDE)
    },
    Directive {
        arguments: &[one("path", Kind::File)],
        doc: "Serves the part of the path behind the route's pattern from another folder: in \
              `route \"/docs/*\" { alias \"/usr/share/doc\" }` the path `/docs/bash/` is looked up as \
              `/usr/share/doc/bash/`. Only for patterns that end in their one star.",
        example: "alias \".\"",
        ..Directive::new("alias", &[Context::Route])
    },
    Directive {
        arguments: &[some("files", Kind::FileName)],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| route.index = item.texts())),
        default: Some("index \"index.html\""),
        doc: "File names tried for a folder, in order.",
        example: "index \"index.html\" \"index.htm\"",
        ..Directive::new("index", EVERYWHERE)
    },
    Directive {
        arguments: &[some("paths", Kind::Try)],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| {
            route.try_list = inherit::try_list(item)
        })),
        doc: "What is looked up instead of the path of the request, in order; the first that exists is served. \
              `{path}` is the path of the request; `{path}/` is the folder of that name, and a request without the \
              slash is redirected to it. `{1}`, `{id}` are stars and groups of the route. `\"@app\"` hands the request on, as it is, to `route \"@app\"` of the \
              site, an application perhaps; `\"=404\"` answers that status. Either comes last; without them the \
              answer is 404.",
        example: "try \"{path}\" \"{path}.html\" \"/index.html\"",
        ..Directive::new("try", INSIDE)
    },
    Directive {
        arguments: &[OFF],
        properties: &[Property {
            name: "page",
            kind: Kind::Number { least: 10, most: 100_000 },
            default: Some("1000"),
            doc: "Most entries of one page.",
        }],
        children: Children::Block(Context::Listing),
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| {
            route.listing = inherit::listing(item)
        })),
        default: Some("listing off"),
        doc: "Lists a folder that has no index file, as HTML or, where the client asks for it, JSON. Without it \
              such a folder answers 404.",
        example: "listing page=500 { readme \"README.html\" }",
        ..Directive::new("listing", EVERYWHERE)
    },
    Directive {
        arguments: &[any_or("files", Kind::FileName, &["off"])],
        default: Some("header \"HEADER.html\""),
        doc: "Files shown above the table where a folder has one of them; the first counts.",
        example: "header \"HEADER.html\"",
        ..Directive::new("header", &[Context::Listing])
    },
    Directive {
        arguments: &[any_or("files", Kind::FileName, &["off"])],
        default: Some("readme \"README.html\" \"README.md\" \"README\""),
        doc: "Files shown below the table where a folder has one of them; the first counts.",
        example: "readme \"README.html\"",
        ..Directive::new("readme", &[Context::Listing])
    },
    Directive {
        arguments: &[one_or("name", Kind::Token, &["off"])],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| route.charset = item.texts().pop())),
        default: Some("charset \"utf-8\""),
        doc: "The character encoding that text is announced with. `off` announces none and leaves the client to \
              guess.",
        example: "charset \"iso-8859-1\"",
        ..Directive::new("charset", EVERYWHERE)
    },
    Directive {
        children: Children::Pairs { name: Kind::Extension, value: Kind::MediaType },
        inheritance: Inheritance::Adds(Apply::to_route(Inherited::add_types)),
        doc: "Media types by extension, before the built-in table.",
        example: "types { \"wasm\" \"application/wasm\" }",
        ..Directive::new("types", EVERYWHERE)
    },
    Directive {
        arguments: &[one("type", Kind::MediaType)],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| {
            route.default_type = item.texts().pop().unwrap_or_default()
        })),
        default: Some("default-type \"application/octet-stream\""),
        doc: "The media type of files whose extension is not known.",
        example: "default-type \"text/plain\"",
        ..Directive::new("default-type", EVERYWHERE)
    },
    Directive {
        arguments: &[any_or("codings", Kind::Choice(&["br", "zst", "gz"]), &["off"])],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| {
            route.precompressed = inherit::codings(item, &["br", "zst", "gz"]);
        })),
        default: Some("precompressed off"),
        doc: "Serves `page.html.br`, `.zst` or `.gz` in place of `page.html` to clients that take it, in the order \
              of preference given; without names all three. Costs no time at all while serving, but the siblings \
              must be kept up to date with their file.",
        example: "precompressed \"br\" \"gz\"",
        ..Directive::new("precompressed", EVERYWHERE)
    },
    Directive {
        arguments: &[any_or("codings", Kind::Choice(&["zstd", "br", "gzip"]), &["off"])],
        properties: &[
            Property {
                name: "min",
                kind: Kind::Size { least: 0, most: 1 << 30 },
                default: Some("1KiB"),
                doc: "Smaller bodies are sent as they are. One of unknown length is looked at for 5 ms: if it has not ended \
                      by then, it counts as long.",
            },
            Property {
                name: "zstd-level",
                kind: Kind::Number { least: 1, most: 19 },
                default: Some("3"),
                doc: "Effort of zstd.",
            },
            Property {
                name: "br-level",
                kind: Kind::Number { least: 0, most: 11 },
                default: Some("4"),
                doc: "Effort of brotli.",
            },
            Property {
                name: "gzip-level",
                kind: Kind::Number { least: 1, most: 9 },
                default: Some("5"),
                doc: "Effort of gzip.",
            },
        ],
        children: Children::Block(Context::Compress),
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| {
            route.compress = inherit::compress(item)
        })),
        default: Some("compress off"),
        doc: "Compresses responses of compressible types on the fly, in the order of preference given; without \
              names all three. Saves the network and costs the processor; the results for static files are kept.",
        example: "compress \"zstd\" \"br\" \"gzip\" min=\"2KiB\" gzip-level=6",
        ..Directive::new("compress", EVERYWHERE)
    },
    Directive {
        arguments: &[some("types", Kind::MediaType)],
        doc: "Media types that are compressed beside the built-in ones.",
        example: "media-types \"application/x-thing\"",
        ..Directive::new("media-types", &[Context::Compress])
    },
    Directive {
        arguments: &[one("which", Kind::Choice(&["beneath", "owner", "any"]))],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| {
            route.symlinks = inherit::symlinks(item)
        })),
        default: Some("symlinks beneath"),
        doc: "Which symbolic links below a root are followed; others answer 404. `beneath`: those that lead to something \
              below the root. `owner`: those that belong to the same user as what they lead to, wherever that lies. \
              `any`: all. With the last two the sandbox lets server processes read whatever their user may, and what \
              lies outside of the root is not kept in the file cache.",
        example: "symlinks owner",
        ..Directive::new("symlinks", EVERYWHERE)
    },
    Directive {
        arguments: &[OFF],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| {
            route.serves_hidden = !item.is_word("off")
        })),
        default: Some("hidden off"),
        doc: "Serves files and folders whose names begin with a dot. Without it they answer 404, but for \
              `/.well-known/`. Such names often hold what was not meant for others: `.git`, `.env`.",
        example: "hidden",
        ..Directive::new("hidden", EVERYWHERE)
    },
    Directive {
        arguments: &[OFF],
        inheritance: Inheritance::Replaces(Apply::to_route(|route, item| {
            route.uses_cache = item.is_word("off")
        })),
        default: Some("nocache off"),
        doc: "Looks at the file system for every request and keeps nothing of it in the file cache.",
        example: "nocache",
        ..Directive::new("nocache", EVERYWHERE)
    },
];
