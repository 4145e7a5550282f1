//! QuickJS by `rquickjs`: one engine for each thread, with bounds of memory, of stack and of time for each call.
//!
//! The time is that of the processor, so that a machine that is busy with others fails no operation. What a call leaves behind (jobs of
//! promises) is done before it is over. There is nothing to import, no file, no network and no timer.

use super::host;
use super::{Called, Export, Given, Mistake, Said, ScriptError};
use crate::clock::{ns, thread_cpu};
use crate::random::Random;
use rquickjs::convert::Coerced;
use rquickjs::{
    CatchResultExt, CaughtError, Context, Ctx, Function, Module, Object, Persistent, Runtime, Value,
};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Bytes that the script of one thread may hold.
const MEMORY: usize = 64 << 20;

/// Bytes of its stack.
const STACK: usize = 256 << 10;

/// Processor time for what stands outside of functions.
const LOAD: Duration = Duration::from_secs(2);

/// What an exception says where there is no memory left.
const FULL: &str = "out of memory";

/// What one says of a module that is imported, before its name.
const NOT_LOADED: &str = "could not load module '";

/// Bytes of what an exception says, at most.
const MOST_MESSAGE: usize = 400;

/// An engine with one script in it.
pub(in crate::scenario) struct Engine {
    // Before the context and the engine that it is of: they outlive it.
    functions: Vec<Option<Persistent<Function<'static>>>>,
    exports: Vec<Export>,
    context: Context,
    runtime: Runtime,
    name: String,
    text: Box<str>,
    within: Duration,
    allowance: Arc<Allowance>,
    random: Rc<RefCell<Random>>,
}

/// Processor time that is left, watched from inside the engine.
struct Allowance {
    /// Of this thread, nanoseconds.
    until: AtomicU64,
    is_spent: AtomicBool,
}

impl Allowance {
    /// Does something that may take so long.
    fn during<T>(&self, within: Duration, work: impl FnOnce() -> T) -> T {
        self.until.store(ns(thread_cpu()).saturating_add(ns(within)), Relaxed);
        self.is_spent.store(false, Relaxed);
        let done = work();
        self.until.store(u64::MAX, Relaxed);
        done
    }

    fn is_over(&self) -> bool {
        let is_over = ns(thread_cpu()) > self.until.load(Relaxed);
        if is_over {
            self.is_spent.store(true, Relaxed);
        }
        is_over
    }
}

impl Engine {
    /// Reads a script and runs what stands outside of its functions.
    pub fn new(name: &str, text: &str, within: Duration) -> Result<Engine, Mistake> {
        let refused = |error: rquickjs::Error| Mistake::Wrong(None, error.to_string());
        let runtime = Runtime::new().map_err(refused)?;
        runtime.set_memory_limit(MEMORY);
        runtime.set_max_stack_size(STACK);
        let allowance =
            Arc::new(Allowance { until: AtomicU64::new(u64::MAX), is_spent: AtomicBool::new(false) });
        let watched = allowance.clone();
        runtime.set_interrupt_handler(Some(Box::new(move || watched.is_over())));
        let context = Context::full(&runtime).map_err(refused)?;
        let random = Rc::new(RefCell::new(Random::new(0, 0)));
        let loaded = allowance.during(LOAD, || context.with(|ctx| load(&ctx, name, text, &random)));
        let (exports, functions) = match loaded {
            loaded if allowance.is_spent.load(Relaxed) => {
                let what =
                    format!("what stands outside of its functions took more than {} s", LOAD.as_secs());
                let place = match loaded {
                    Err(Mistake::Wrong(place, _)) => place,
                    _ => None,
                };
                return Err(Mistake::Wrong(place, what));
            }
            loaded => loaded?.into_iter().unzip(),
        };
        Ok(Engine {
            functions,
            exports,
            context,
            runtime,
            name: name.to_owned(),
            text: text.into(),
            within,
            allowance,
            random,
        })
    }

    /// What it exports.
    pub fn exports(&self) -> Vec<Export> {
        self.exports.clone()
    }

    /// Calls what is exported at a place. `random` is what `Math.random` draws from.
    pub fn call(
        &mut self,
        function: u16,
        given: &Given<'_>,
        random: &mut Random,
    ) -> Result<Said, ScriptError> {
        let export = self.exports.get(usize::from(function));
        let mut called = Called {
            function: export.map(|export| export.name.clone()).unwrap_or_default(),
            file: self.name.clone(),
            place: export.and_then(|export| export.place),
        };
        let Some(Some(function)) = self.functions.get(usize::from(function)).cloned() else {
            return Err(ScriptError::Threw(called, "it is no function".to_owned()));
        };
        *self.random.borrow_mut() = random.clone();
        let (said, is_late) = self.allowance.during(self.within, || {
            let said = self.context.with(|ctx| {
                let invoked = invoke(&ctx, function, given).catch(&ctx);
                invoked.map_err(|caught| told(&self.name, &caught))
            });
            // Nobody else does what promises have left.
            while self.runtime.is_job_pending() && !self.allowance.is_over() {
                // What a job throws has nobody who waits for it.
                let _ = self.runtime.execute_pending_job();
            }
            let is_ended = self.allowance.is_spent.load(Relaxed);
            // Not every function of the language can be ended in the middle.
            let is_late = is_ended || said.is_ok() && self.allowance.is_over();
            (said, is_late)
        });
        *random = self.random.borrow().clone();
        let is_full = matches!(&said, Err((_, what)) if what.contains(FULL));
        if is_full || self.runtime.is_job_pending() {
            // What it has left would be at the cost of the calls that follow.
            if let Ok(renewed) = Engine::new(&self.name, &self.text, self.within) {
                *self = renewed;
            }
        }
        if let Err((Some(place), _)) = &said {
            called.place = Some(*place);
        }
        if is_late {
            return Err(ScriptError::TookTooLong { called, within: self.within });
        }
        said.map_err(|(_, what)| ScriptError::Threw(called, what))
    }
}

type Exports = Vec<(Export, Option<Persistent<Function<'static>>>)>;

fn load(ctx: &Ctx<'_>, name: &str, text: &str, random: &Rc<RefCell<Random>>) -> Result<Exports, Mistake> {
    let evaluate = || -> rquickjs::Result<Exports> {
        host::furnish(ctx, random)?;
        let (module, done) = Module::declare(ctx.clone(), name, text)?.eval()?;
        done.finish::<()>()?;
        let exports = module.namespace()?;
        let mut found = Exports::new();
        for key in exports.keys::<String>() {
            let name = key?;
            let value: Value<'_> = exports.get(name.as_str())?;
            let function = value.into_function();
            let number = |name: &str| function.as_ref()?.get::<_, Option<u32>>(name).ok()?;
            let place = number("lineNumber").zip(number("columnNumber"));
            let export = Export { name, place, is_function: function.is_some() };
            found.push((export, function.map(|function| Persistent::save(ctx, function))));
        }
        Ok(found)
    };
    evaluate().catch(ctx).map_err(|caught| {
        let (place, what) = told(name, &caught);
        match what.split_once(NOT_LOADED).and_then(|(_, module)| module.strip_suffix('\'')) {
            Some(module) => {
                let place = place.or_else(|| place_of_import(text, module));
                Mistake::Wrong(
                    place,
                    format!("`{module}` is imported; a script is one file, with nothing to import"),
                )
            }
            None => Mistake::Wrong(place, what),
        }
    })
}

/// Where the text names a module that it imports. The engine does not say.
fn place_of_import(text: &str, module: &str) -> Option<(u32, u32)> {
    let ends = [format!("{module}'"), format!("{module}\"")];
    (1..).zip(text.lines()).find_map(|(number, line)| {
        let words = ["import", "from"];
        let at = ends.iter().find_map(|end| line.find(end.as_str()))?;
        let before = line.get(..at)?;
        // `./` and `../` are not of the name that is told.
        let quote = before.rfind(['\'', '"'])?;
        let is_import = words.iter().any(|word| before.get(..quote).is_some_and(|rest| rest.contains(word)));
        is_import.then(|| (number, before.get(..quote).unwrap_or_default().chars().count() as u32 + 1))
    })
}

fn invoke<'js>(
    ctx: &Ctx<'js>,
    export: Persistent<Function<'static>>,
    given: &Given<'_>,
) -> rquickjs::Result<Said> {
    let argument = Object::new(ctx.clone())?;
    argument.set("user", given.user)?;
    argument.set("operation", given.operation)?;
    let vars = Object::new(ctx.clone())?;
    for (name, value) in &given.vars {
        vars.set(*name, &**value)?;
    }
    argument.set("vars", vars)?;
    if let Some(response) = &given.response {
        let object = Object::new(ctx.clone())?;
        object.set("status", response.status)?;
        object.set("body", &*String::from_utf8_lossy(response.body))?;
        let headers = Object::new(ctx.clone())?;
        for (name, value) in &response.headers {
            headers.set(name.as_str(), value.as_str())?;
        }
        object.set("headers", headers)?;
        argument.set("response", object)?;
    }
    let function = export.restore(ctx)?;
    let mut value: Value<'js> = function.call((argument,))?;
    if let Some(promise) = value.as_promise().cloned() {
        value = promise.finish()?;
    }
    said(ctx, value)
}

fn said<'js>(ctx: &Ctx<'js>, value: Value<'js>) -> rquickjs::Result<Said> {
    if value.is_undefined() || value.is_null() {
        return Ok(Said::Nothing);
    }
    if let Some(truth) = value.as_bool() {
        return Ok(Said::Bool(truth));
    }
    if value.is_object() && !value.is_array() && !value.is_function() {
        let mut fields = Vec::new();
        for property in
            value.into_object().into_iter().flat_map(|object| object.props::<String, Value<'js>>())
        {
            let (name, value) = property?;
            fields.push((name, text(ctx, value)?));
        }
        return Ok(Said::Fields(fields));
    }
    Ok(text(ctx, value)?.map_or(Said::Nothing, Said::Text))
}

/// A value as a text; objects and lists as JSON.
fn text<'js>(ctx: &Ctx<'js>, value: Value<'js>) -> rquickjs::Result<Option<String>> {
    if value.is_undefined() || value.is_null() {
        return Ok(None);
    }
    if value.is_object() {
        return ctx.json_stringify(value)?.map(|json| json.to_string()).transpose();
    }
    value.get::<Coerced<String>>().map(|coerced| Some(coerced.0))
}

/// Where in the script something was thrown, and what.
fn told(name: &str, caught: &CaughtError<'_>) -> (Option<(u32, u32)>, String) {
    let (place, what) = match caught {
        CaughtError::Exception(exception) => {
            let kind: Option<Coerced<String>> = exception.as_object().get("name").ok();
            let kind = kind.map_or_else(|| "Error".to_owned(), |kind| kind.0);
            let message = exception.message().unwrap_or_default();
            (place_in(name, &exception.stack().unwrap_or_default()), format!("{kind}: {message}"))
        }
        CaughtError::Value(value) => {
            let thrown = value.get::<Coerced<String>>().map(|thrown| thrown.0);
            (None, format!("it threw {}", thrown.unwrap_or_else(|_| "something".to_owned())))
        }
        CaughtError::Error(error) => (None, error.to_string()),
    };
    (place, what.chars().take(MOST_MESSAGE).collect())
}

/// The first place of a stack that is in the script.
fn place_in(name: &str, stack: &str) -> Option<(u32, u32)> {
    stack.lines().find_map(|line| {
        let (_, behind) = line.split_once(&format!("{name}:"))?;
        let mut numbers = behind.trim_end_matches(')').split(':').map(|number| number.parse().ok());
        Some((numbers.next()??, numbers.next().flatten().unwrap_or(1)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::script::Response;

    const WITHIN: Duration = Duration::from_millis(100);

    fn engine(text: &str) -> Engine {
        patient(text, WITHIN)
    }

    fn patient(text: &str, within: Duration) -> Engine {
        Engine::new("s.js", text, within).unwrap_or_else(|mistake| panic!("{mistake:?}"))
    }

    fn call(engine: &mut Engine, name: &str, given: &Given<'_>) -> Result<Said, ScriptError> {
        let place = engine.exports.iter().position(|export| export.name == name).unwrap();
        engine.call(place as u16, given, &mut Random::new(1, 1))
    }

    #[test]
    fn a_function_gets_what_there_is_and_returns_what_it_likes() {
        let mut engine = engine(
            "export function all({ vars, user, operation, response }) {
                return { a: vars.item + user, b: operation, c: response.status + response.headers['x-kind'] + response.body,
                         d: [1, 'x'], e: undefined };
             }
             export const text = ({ response }) => response === undefined ? 'none' : 'some';
             export const number = () => 12.5;
             export const list = () => ['a', { b: 1 }];
             export const yes = () => true;
             export const nothing = () => {};
             export async function later() { return await Promise.resolve('later'); }
             export const table = 7;",
        );
        let given = Given {
            user: 3,
            operation: "home",
            vars: vec![("item", "/7".into())],
            response: Some(Response {
                status: 200,
                headers: vec![("x-kind".to_owned(), "k".to_owned())],
                body: b"\xffbody",
            }),
        };
        let field = |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
        let fields = vec![
            field("a", Some("/73")),
            field("b", Some("home")),
            field("c", Some("200k\u{fffd}body")),
            field("d", Some("[1,\"x\"]")),
            field("e", None),
        ];
        assert_eq!(call(&mut engine, "all", &given), Ok(Said::Fields(fields)));
        let bare = Given::default();
        for (name, said) in [
            ("text", Said::Text("none".to_owned())),
            ("number", Said::Text("12.5".to_owned())),
            ("list", Said::Text("[\"a\",{\"b\":1}]".to_owned())),
            ("yes", Said::Bool(true)),
            ("nothing", Said::Nothing),
            ("later", Said::Text("later".to_owned())),
        ] {
            assert_eq!(call(&mut engine, name, &bare), Ok(said), "{name}");
        }
        assert!(call(&mut engine, "table", &bare).is_err());
        let table = engine.exports().into_iter().find(|export| export.name == "table").unwrap();
        assert!(!table.is_function && table.place.is_none());
    }

    #[test]
    fn mistakes_have_their_place() {
        for (text, place, part) in [
            ("export function f() {\n  return (;\n}", Some((2, 11)), "SyntaxError"),
            ("\n\nthrow new TypeError('no');", Some((3, 11)), "TypeError: no"),
            ("const a = 1;\n import x from 'other.js';", Some((2, 16)), "`other.js` is imported"),
            (
                "// other.js\nimport {\n  y\n} from \"./lib/other.js\"",
                Some((4, 8)),
                "lib/other.js` is imported",
            ),
            ("globalThis.leak = 1;", Some((1, 1)), "TypeError"),
            // The engine knows the place of a call, and of a loop without one where its function begins.
            ("\nwhile (true) {}", Some((1, 1)), "took more than 2 s"),
            (
                "const f = () => {\n  for (let n = 0; ; n++) {\n    Math.max(n, 2);\n  }\n};\nf();",
                Some((3, 14)),
                "took more than 2 s",
            ),
            ("await 1; throw 'text'", None, "it threw text"),
        ] {
            let Err(Mistake::Wrong(at, what)) = Engine::new("s.js", text, WITHIN) else { panic!("{text}") };
            assert!(what.contains(part), "{text}: {what}");
            assert_eq!(at, place, "{text}: {what}");
        }
    }

    #[test]
    fn whatever_a_call_does_is_an_error_and_the_next_one_works() {
        let mut engine = engine(
            "export const throws = ({ vars }) =>\n   vars.none.length;
             export const odd = () => { throw 'a text'; };
             export const spins = () => { while (true) {} };
             export const stubborn = () => { for (;;) { try { for (;;) {} } catch {} } };
             export const chain = () => { const again = () => Promise.resolve().then(again); again(); };
             export const deep = () => deep() + 1;
             export const regex = () => /^(a+)+$/.test('a'.repeat(60) + 'b');
             export const rejects = () => { Promise.reject(new Error('no')); Promise.resolve().then(() => 1); throw 'rejected'; };
             export const waits = () => new Promise(() => {});
             export const fine = () => 'fine';
             const forever = () => {
                 for (;;) {}
             };
             export const helped = () => forever();",
        );
        let bare = Given::default();
        for (name, part) in [
            ("throws", "`throws` (s.js:2:"),
            ("throws", "TypeError"),
            // Where it begins, for want of a better place.
            ("odd", "`odd` (s.js:3:"),
            ("odd", "it threw a text"),
            ("spins", "`spins` (s.js:4:"),
            ("spins", "took more than 100 ms of the processor"),
            ("stubborn", "`stubborn` (s.js:5:"),
            ("chain", "`chain` (s.js:6:"),
            ("chain", "took more than 100 ms"),
            ("deep", "`deep` (s.js:7:"),
            ("regex", "`regex` (s.js:8:"),
            ("regex", "took more than 100 ms"),
            ("rejects", "`rejects` (s.js:9:"),
            ("waits", "`waits` (s.js:10:"),
            ("helped", "`helped` (s.js:12:"),
        ] {
            let error = call(&mut engine, name, &bare).unwrap_err().to_string();
            assert!(error.contains(part), "{name}: {error}");
            assert_eq!(call(&mut engine, "fine", &bare), Ok(Said::Text("fine".to_owned())), "after {name}");
        }
        // A script that holds all memory for good gets a new engine, and nothing of what does not fit any more is more than an error.
        let mut engine = patient(
            "const kept = [];
             export const big = () => { const all = []; for (;;) all.push('x'.repeat(1 << 20) + all.length); };
             export const leak = () => { for (;;) kept.push('x'.repeat(1 << 16) + kept.length); };
             export const creep = ({ response }) => { for (let n = 0; n < 300; n++) kept.push(response.body + kept.length); return [kept.length]; };",
            Duration::from_secs(600),
        );
        for name in ["big", "leak"] {
            let error = call(&mut engine, name, &bare).unwrap_err().to_string();
            assert!(error.contains(FULL), "{name}: {error}");
        }
        let body = "x".repeat(7_919);
        let names: Vec<String> = (0..50).map(|number| format!("v{number}")).collect();
        for number in 0..200 {
            let given = Given {
                vars: names
                    .iter()
                    .take(number % 50)
                    .map(|name| (name.as_str(), body.as_str().into()))
                    .collect(),
                response: Some(Response {
                    status: 200,
                    headers: vec![("x".to_owned(), "y".repeat(number))],
                    body: body.get(..number * 39).unwrap_or_default().as_bytes(),
                }),
                ..Given::default()
            };
            if let Err(error) = call(&mut engine, "creep", &given) {
                assert!(error.to_string().contains(FULL), "{error}");
            }
        }
        // Half a character: a text of some kind or an error, and no panic.
        let mut engine = self::engine("export const half = () => 'a\\ud800b';");
        let _ = call(&mut engine, "half", &bare);
    }

    #[test]
    fn a_seed_repeats_what_is_drawn() {
        let mut engine = engine("export const draw = () => Math.random();");
        let mut draw = |seed| {
            let mut random = Random::new(seed, 1);
            let first = engine.call(0, &Given::default(), &mut random).unwrap();
            (first, engine.call(0, &Given::default(), &mut random).unwrap())
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        let (first, second) = draw(1);
        assert_ne!(first, second);
    }
}
