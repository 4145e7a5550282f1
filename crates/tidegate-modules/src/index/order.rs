//! The order of names that people expect: `file2` before `file10`, `a` beside `A`.
//!
//! Called by the scan, a few times for each entry: it allocates nothing. Case is folded for ASCII only;
//! other letters keep the order of their code points, which is the order of their UTF-8 bytes.

use std::cmp::Ordering;

/// Compares two names. A run of digits counts as its number, whatever its length; names that are equal in
/// this sense are told apart by their bytes, so that the order is total and every page is stable.
pub fn natural(left: &[u8], right: &[u8]) -> Ordering {
    let common = left.iter().zip(right).take_while(|(a, b)| a == b).count();
    // A number that both share only in part is compared as a whole.
    let digits = left[..common].iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    compare(&left[common - digits..], &right[common - digits..]).then_with(|| left.cmp(right))
}

fn compare(mut left: &[u8], mut right: &[u8]) -> Ordering {
    loop {
        let (Some(&a), Some(&b)) = (left.first(), right.first()) else {
            return left.len().cmp(&right.len());
        };
        let order = if a.is_ascii_digit() && b.is_ascii_digit() {
            let (a, b) = (number(&mut left), number(&mut right));
            a.len().cmp(&b.len()).then_with(|| a.cmp(b))
        } else {
            (left, right) = (&left[1..], &right[1..]);
            a.to_ascii_lowercase().cmp(&b.to_ascii_lowercase())
        };
        if order.is_ne() {
            return order;
        }
    }
}

/// Cuts the digits off the front; returned without leading zeros, longer is larger.
fn number<'a>(name: &mut &'a [u8]) -> &'a [u8] {
    let end = name.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(name.len());
    let (digits, rest) = name.split_at(end);
    *name = rest;
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    &digits[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_in_order() {
        let ordered: &[&str] = &[
            "",
            " space",
            "-dash",
            "0",
            "01",
            "1",
            "2",
            "10",
            "10a",
            "10b",
            "99999999999999999999999998",
            "99999999999999999999999999",
            "a",
            "A1",
            "a2",
            "a2.txt",
            "A10",
            "B",
            "file2",
            "file10",
            "file010b",
            "File11",
            "é",
        ];
        for (index, left) in ordered.iter().enumerate() {
            for (other, right) in ordered.iter().enumerate() {
                let order = natural(left.as_bytes(), right.as_bytes());
                assert_eq!(order, index.cmp(&other), "{left:?} {right:?}");
            }
        }
    }

    fn name() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(proptest::sample::select(b"0019aAbB.-\xff".to_vec()), 0..8)
    }

    proptest! {
        /// A sort that is given an order that is not total may panic.
        #[test]
        fn the_order_is_total(a in name(), b in name(), c in name()) {
            prop_assert_eq!(natural(&a, &b), natural(&b, &a).reverse());
            prop_assert_eq!(natural(&a, &b).is_eq(), a == b);
            if natural(&a, &b).is_lt() && natural(&b, &c).is_lt() {
                prop_assert!(natural(&a, &c).is_lt());
            }
        }
    }
}
