//! Pseudonyms such as `function_3f9a1c04`, which are always the same for the same name and key. The digits are the
//! start of a keyed hash (HMAC-SHA-256), so a guessed name can be confirmed only with the key.
//!
//! **Why `hmac-sha256`?** It has no dependencies and no build script. blake3 needs a crate that runs a C compiler, and
//! sha2 with hmac needs eight more crates.

use hmac_sha256::HMAC;
use std::collections::HashMap;

/// The number of hexadecimal digits in a pseudonym.
const DIGITS: usize = 8;
/// The number of digits if another name already has the same first digits.
const LONG_DIGITS: usize = 16;

/// The kinds of names. Every pseudonym starts with its kind.
pub(super) const KINDS: [&str; 15] = [
    "annotation",
    "class",
    "file",
    "function",
    "mark",
    "module",
    "name",
    "operator",
    "path",
    "scope",
    "state",
    "task",
    "text",
    "thread",
    "Type",
];

/// The pseudonyms that have been assigned to names.
#[derive(Clone, Debug)]
pub(super) struct Pseudonyms {
    key: Vec<u8>,
    digits: HashMap<String, String>,
    /// The name that each group of digits belongs to.
    names: HashMap<String, String>,
    /// The number of names whose first digits already belonged to another name.
    pub(super) collisions: usize,
}

impl Pseudonyms {
    pub(super) fn new(key: &str) -> Self {
        // Derive the key, so that it differs from other uses of the same text as a key.
        let key = HMAC::mac(key.as_bytes(), b"memtrack scrub 1").to_vec();
        Self { key, digits: HashMap::new(), names: HashMap::new(), collisions: 0 }
    }

    /// Returns the pseudonym of a name, in the form `kind_digits`. A pseudonym is returned unchanged, so that scrubbing
    /// twice has the same result as scrubbing once.
    pub(super) fn pseudonym(&mut self, kind: &'static str, name: &str) -> String {
        debug_assert!(KINDS.contains(&kind), "{kind}");
        if name.is_empty() || is_pseudonym(name) {
            return name.to_owned();
        }
        format!("{kind}_{}", self.digits(name))
    }

    /// Replaces the ID of a process or thread with a 32-bit number. Its highest bit is set, which is not the case for any
    /// ID on Linux. An ID of 0 stays 0.
    pub(super) fn scrub_number(&self, number: u64) -> u64 {
        const REPLACED_BIT: u64 = 1 << 31;
        if number == 0 || number >> 31 == 1 {
            return number;
        }
        let mac = HMAC::mac(number.to_le_bytes(), &self.key);
        REPLACED_BIT | (u64::from(u32::from_le_bytes([mac[0], mac[1], mac[2], mac[3]])) & (REPLACED_BIT - 1))
    }

    fn digits(&mut self, name: &str) -> &str {
        if !self.digits.contains_key(name) {
            let mac = HMAC::mac(name.as_bytes(), &self.key);
            let hex: String = mac.iter().map(|byte| format!("{byte:02x}")).collect();
            let mut digits = hex[..DIGITS].to_owned();
            if self.names.contains_key(&digits) {
                self.collisions += 1;
                digits = hex[..LONG_DIGITS].to_owned();
            }
            self.names.insert(digits.clone(), name.to_owned());
            self.digits.insert(name.to_owned(), digits);
        }
        &self.digits[name]
    }
}

/// Returns whether a name has the form of a pseudonym.
pub(super) fn is_pseudonym(name: &str) -> bool {
    name.rsplit_once('_').is_some_and(|(kind, digits)| {
        KINDS.contains(&kind)
            && (digits.len() == DIGITS || digits.len() == LONG_DIGITS)
            && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_gives_name_one_pseudonym() {
        let (mut one, mut other) = (Pseudonyms::new("a"), Pseudonyms::new("b"));
        let name = one.pseudonym("function", "forward");
        assert_eq!(name, one.pseudonym("function", "forward"));
        assert_eq!(name, Pseudonyms::new("a").pseudonym("function", "forward"));
        assert_ne!(name, other.pseudonym("function", "forward"));
        assert_ne!(name, one.pseudonym("function", "backward"));
        assert_eq!(one.pseudonym("path", &name), name, "a pseudonym stays");
        assert!(
            is_pseudonym(&name) && !is_pseudonym("function_xyz12345") && !is_pseudonym("secret_3f9a1c04")
        );
    }

    #[test]
    fn names_that_share_their_first_digits_stay_distinct() {
        let mut names = Pseudonyms::new("");
        let taken = names.pseudonym("name", "a");
        let digits = taken.trim_start_matches("name_").to_owned();
        let mut again = Pseudonyms::new("");
        again.names.insert(digits, "another".into());
        let longer = again.pseudonym("name", "a");
        assert!(longer.starts_with(&taken) && longer.len() == taken.len() + 8, "{longer}");
        assert_eq!(again.collisions, 1);
        assert!(is_pseudonym(&longer));
    }

    #[test]
    fn replacing_number_is_idempotent() {
        let names = Pseudonyms::new("k");
        let hidden = names.scrub_number(4242);
        assert!(hidden != 4242 && names.scrub_number(hidden) == hidden && hidden <= u64::from(u32::MAX));
        assert_eq!(names.scrub_number(0), 0);
    }
}
