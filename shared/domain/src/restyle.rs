//! The same JSON, written in another way: white space and escapes as other serialisers choose them. Token by token, so
//! that numbers, key order and duplicates stay as they are.

/// A way to lay out JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// No white space.
    Compact,
    /// A blank after each comma and colon.
    Spaced,
    /// Lines, indented by so many blanks.
    Indented(usize),
}

/// A way to write what is not ASCII.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Escapes {
    /// As it stands.
    Kept,
    /// As `\uXXXX`.
    Ascii,
    /// As itself.
    Plain,
}

/// Every other way to write a JSON text, with a word for each. None for a text that is no JSON.
pub(crate) fn restyled(body: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let Ok(text) = std::str::from_utf8(body) else { return Vec::new() };
    if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
        return Vec::new();
    }
    let layouts = [
        (Layout::Compact, "without white space"),
        (Layout::Spaced, "with a blank after each comma and colon"),
        (Layout::Indented(2), "indented by two blanks"),
        (Layout::Indented(4), "indented by four blanks"),
    ];
    let mut all = Vec::new();
    for escapes in [Escapes::Kept, Escapes::Ascii, Escapes::Plain] {
        for (layout, word) in layouts {
            let other = write(text, layout, escapes).into_bytes();
            if other != body && !all.iter().any(|(_, seen)| *seen == other) {
                all.push((word, other));
            }
        }
    }
    all
}

fn write(text: &str, layout: Layout, escapes: Escapes) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let (mut depth, mut rest) = (0_usize, text.trim_ascii());
    let new_line = |out: &mut String, depth: usize| {
        if let Layout::Indented(by) = layout {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', by * depth));
        }
    };
    while let Some(c) = rest.chars().next() {
        if c == '"' {
            let end = string_end(rest);
            out.push_str(&escaped(&rest[..end], escapes));
            rest = rest[end..].trim_ascii_start();
            continue;
        }
        rest = rest[c.len_utf8()..].trim_ascii_start();
        match c {
            '{' | '[' if rest.starts_with(['}', ']']) => {
                out.push(c);
                out.push_str(&rest[..1]);
                rest = rest[1..].trim_ascii_start();
            }
            '{' | '[' => {
                depth += 1;
                out.push(c);
                new_line(&mut out, depth);
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                new_line(&mut out, depth);
                out.push(c);
            }
            ',' => {
                out.push(c);
                if layout == Layout::Spaced {
                    out.push(' ');
                }
                new_line(&mut out, depth);
            }
            ':' => {
                out.push(c);
                if layout != Layout::Compact {
                    out.push(' ');
                }
            }
            other => out.push(other),
        }
    }
    out
}

/// The length of the string that a text begins with, quotes included.
fn string_end(text: &str) -> usize {
    let mut escape = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escape => escape = false,
            '\\' => escape = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn escaped(string: &str, escapes: Escapes) -> String {
    match escapes {
        Escapes::Kept => string.to_owned(),
        Escapes::Ascii => {
            let mut out = String::with_capacity(string.len());
            for c in string.chars() {
                if c.is_ascii() {
                    out.push(c);
                } else {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
            }
            out
        }
        Escapes::Plain => plain(string),
    }
}

/// A string whose escapes of characters beyond ASCII are written out; others, and lone surrogates, stay.
fn plain(string: &str) -> String {
    let unit = |at: usize| {
        let digits = string.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let (mut out, mut at) = (String::with_capacity(string.len()), 0);
    while let Some(c) = string[at..].chars().next() {
        let units: Vec<u16> = [unit(at), unit(at + 6)].into_iter().map_while(|unit| unit).collect();
        let read = char::decode_utf16(units).next().and_then(Result::ok).filter(|read| c == '\\' && !read.is_ascii());
        if let Some(read) = read {
            out.push(read);
            at += 6 * read.len_utf16();
        } else {
            // A backslash and what it escapes belong together.
            let take = if c == '\\' { 2.min(string.len() - at) } else { c.len_utf8() };
            out.push_str(&string[at..at + take]);
            at += take;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_differ_only_in_white_space() {
        let text = r#" {"a" : [1.0, 2e5,{}], "b,:" :"x\"{ y" } "#;
        assert_eq!(write(text, Layout::Compact, Escapes::Kept), r#"{"a":[1.0,2e5,{}],"b,:":"x\"{ y"}"#);
        assert_eq!(write(text, Layout::Spaced, Escapes::Kept), r#"{"a": [1.0, 2e5, {}], "b,:": "x\"{ y"}"#);
        assert_eq!(
            write(text, Layout::Indented(2), Escapes::Kept),
            "{\n  \"a\": [\n    1.0,\n    2e5,\n    {}\n  ],\n  \"b,:\": \"x\\\"{ y\"\n}"
        );
    }

    #[test]
    fn escapes_go_both_ways_and_lone_surrogates_stay() {
        let (plain, ascii) = (r#"["é😀\n\\u00e9"]"#, r#"["\u00e9\ud83d\ude00\n\\u00e9"]"#);
        assert_eq!(write(plain, Layout::Compact, Escapes::Ascii), ascii);
        assert_eq!(write(ascii, Layout::Compact, Escapes::Plain), plain);
        assert_eq!(write(r#""\ud83dx""#, Layout::Compact, Escapes::Plain), r#""\ud83dx""#);
    }

    #[test]
    fn every_other_form_is_there_and_once() {
        let words: Vec<&str> = restyled(br#"{"a":1}"#).into_iter().map(|(word, _)| word).collect();
        assert_eq!(
            words,
            ["with a blank after each comma and colon", "indented by two blanks", "indented by four blanks"]
        );
    }

    #[test]
    fn what_is_no_json_has_no_other_form() {
        assert!(restyled(b"{").is_empty() && restyled(&[0xff]).is_empty());
        assert!(restyled(br#"{"a":1}"#).iter().all(|(_, other)| other != br#"{"a":1}"#));
    }

    proptest::proptest! {
        #[test]
        fn any_text_survives_every_style(text in ".{0,40}") {
            let value = serde_json::json!({"k": [text, {"é": 1}], "empty": {}});
            for (word, other) in restyled(value.to_string().as_bytes()) {
                let read: serde_json::Value = serde_json::from_slice(&other).unwrap();
                proptest::prop_assert_eq!(&read, &value, "{}", word);
            }
        }
    }
}
