//! What a script finds beside the language: `tidegate`, with what requests are signed with, and a `Math.random` that a seed repeats.

use crate::random::Random;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rquickjs::prelude::Opt;
use rquickjs::{Ctx, Exception, Function, Object, Result};
use sha2::{Digest, Sha256};
use std::cell::RefCell;
use std::rc::Rc;

/// Bytes of a block of SHA-256.
const BLOCK: usize = 64;

/// Puts it there, and lets nobody put anything else there.
pub(super) fn furnish<'js>(ctx: &Ctx<'js>, random: &Rc<RefCell<Random>>) -> Result<()> {
    let globals = ctx.globals();
    let math: Object<'_> = globals.get("Math")?;
    let random = random.clone();
    // In [0, 1).
    math.set("random", Function::new(ctx.clone(), move || 1.0 - random.borrow_mut().unit())?)?;

    let ours = Object::new(ctx.clone())?;
    let sha256 =
        |ctx: Ctx<'_>, text: String, form: Opt<String>| written(&ctx, Sha256::digest(text).as_slice(), form);
    ours.set("sha256", Function::new(ctx.clone(), sha256)?)?;
    let hmac = |ctx: Ctx<'js>, key: String, text: String, form: Opt<String>| {
        written(&ctx, &hmac_sha256(key.as_bytes(), text.as_bytes()), form)
    };
    ours.set("hmacSha256", Function::new(ctx.clone(), hmac)?)?;
    ours.set("base64", Function::new(ctx.clone(), |text: String| STANDARD.encode(text))?)?;
    ours.set("base64url", Function::new(ctx.clone(), |text: String| URL_SAFE_NO_PAD.encode(text))?)?;
    globals.set("tidegate", ours)?;
    // What users of one thread share would be there by chance.
    ctx.eval::<(), _>("Object.freeze(tidegate); Object.freeze(Math); Object.freeze(globalThis); undefined")
}

/// Bytes in the form that is asked for: `hex`, which is the default, `base64` or `base64url`.
fn written(ctx: &Ctx<'_>, bytes: &[u8], form: Opt<String>) -> Result<String> {
    match form.0.as_deref().unwrap_or("hex") {
        "hex" => Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        "base64" => Ok(STANDARD.encode(bytes)),
        "base64url" => Ok(URL_SAFE_NO_PAD.encode(bytes)),
        other => {
            let message = format!("{other:?} is no form; there are hex, base64 and base64url");
            Err(Exception::throw_type(ctx, &message))
        }
    }
}

/// HMAC (RFC 2104) with SHA-256.
fn hmac_sha256(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut block = [0; BLOCK];
    let hashed;
    let key = if key.len() > BLOCK {
        hashed = Sha256::digest(key);
        hashed.as_slice()
    } else {
        key
    };
    block.iter_mut().zip(key).for_each(|(place, byte)| *place = *byte);
    let padded = |pad: u8| block.map(|byte| byte ^ pad);
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().as_slice().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rquickjs::{Context, Runtime};

    #[test]
    fn signatures_are_those_of_the_documents() {
        let context = Context::full(&Runtime::new().unwrap()).unwrap();
        context.with(|ctx| {
            furnish(&ctx, &Rc::new(RefCell::new(Random::new(1, 1)))).unwrap();
            let evaluated = |text: &str| ctx.eval::<String, _>(text).unwrap();
            // RFC 4231, test cases 2 and 6.
            assert_eq!(
                evaluated("tidegate.hmacSha256('Jefe', 'what do ya want for nothing?')"),
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
            );
            let long: Vec<u8> = vec![0xaa; 131];
            let text = b"Test Using Larger Than Block-Size Key - Hash Key First";
            assert_eq!(
                hmac_sha256(&long, text).iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
                "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
            );
            assert_eq!(
                evaluated("tidegate.sha256('abc', 'base64')"),
                "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0="
            );
            assert_eq!(evaluated("tidegate.base64('a?>') + tidegate.base64url('a?>')"), "YT8+YT8-");
            assert!(ctx.eval::<String, _>("tidegate.sha256('abc', 'rot13')").is_err());
            assert!(ctx.eval::<(), _>("'use strict'; Math.random = 1;").is_err());
        });
    }
}
