//! Putting in and taking out, over files of many shapes.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    client::{Client, ClientFile},
    document::{self, Broken, Done, Language, Margins, Taken},
    grown::{Grown, without},
    part::{Found, Part},
};

fn gemini() -> ClientFile {
    Client::Gemini.files("earshot").remove(0)
}

fn claude_server() -> Part {
    let files = Client::ClaudeCode.files("earshot");
    files[0].parts[0].clone()
}

fn codex() -> ClientFile {
    Client::Codex.files("earshot").remove(0)
}

/// A small server, so that what is expected can be read.
fn small() -> Part {
    Part {
        value: json!({"command": "earshot", "args": ["mcp"]}),
        ..claude_server()
    }
}

/// Puts parts in, all of which must go in.
fn put_all(language: Language, text: &str, parts: &[Part]) -> (Grown, Vec<Margins>) {
    let mut grown = Grown::new(text.to_owned());
    let margins = parts
        .iter()
        .map(|part| match document::put(language, &mut grown, part) {
            Ok(Done::Put(margins)) => margins,
            other => panic!("{other:?} in {text:?}"),
        })
        .collect();
    (grown, margins)
}

/// Puts parts in and takes them out again, in all ways that there are.
fn there_and_back(language: Language, text: &str, parts: &[Part]) -> String {
    let (grown, margins) = put_all(language, text, parts);
    let after = grown.text().to_owned();
    assert_eq!(
        without(&after, grown.own()).as_deref(),
        Some(text),
        "{after}"
    );
    let mut again = grown;
    for part in parts {
        assert_eq!(
            document::put(language, &mut again, part),
            Ok(Done::There),
            "{after}"
        );
    }
    assert_eq!(again.text(), after);
    let mut rest = after.clone();
    for (part, margins) in parts.iter().zip(&margins).rev() {
        match document::take(language, &rest, part, Some(margins)) {
            Ok(Taken::Out(without)) => rest = without,
            other => panic!("{other:?} from {rest:?}"),
        }
    }
    let had_a_document = language == Language::Toml || text.contains('{');
    if had_a_document {
        assert_eq!(rest, text, "taken out of {after:?}");
    } else {
        assert_eq!(rest.trim(), format!("{}\n{{}}", text.trim()).trim());
    }
    after
}

#[test]
fn a_server_is_put_into_json_as_the_file_is_written() {
    for (before, after) in [
        (
            "",
            "{\n  \"mcpServers\": {\n    \"earshot\": {\n      \"command\": \"earshot\",\n      \
             \"args\": [\"mcp\"]\n    }\n  }\n}\n",
        ),
        (
            "{}",
            "{\n  \"mcpServers\": {\n    \"earshot\": {\n      \"command\": \"earshot\",\n      \
             \"args\": [\"mcp\"]\n    }\n  }\n}",
        ),
        (
            r#"{"a":1}"#,
            r#"{"a":1,"mcpServers":{"earshot":{"command":"earshot","args":["mcp"]}}}"#,
        ),
        (
            r#"{ "a": 1 }"#,
            r#"{ "a": 1, "mcpServers": {"earshot": {"command": "earshot", "args": ["mcp"]}} }"#,
        ),
        (
            "{\n\t\"mcpServers\": {\n\t\t\"b\": 1\n\t}\n}\n",
            "{\n\t\"mcpServers\": {\n\t\t\"b\": 1,\n\t\t\"earshot\": {\n\t\t\t\"command\": \
             \"earshot\",\n\t\t\t\"args\": [\"mcp\"]\n\t\t}\n\t}\n}\n",
        ),
        (
            "{\r\n    \"mcpServers\": {},\r\n    \"z\": 2\r\n}",
            "{\r\n    \"mcpServers\": {\r\n        \"earshot\": {\r\n            \"command\": \
             \"earshot\",\r\n            \"args\": [\"mcp\"]\r\n        }\r\n    },\r\n    \
             \"z\": 2\r\n}",
        ),
        (
            "// mine\n{\n  \"mcpServers\": {\n    \"b\": 1, // last\n    /* behind */\n  },\n}\n",
            "// mine\n{\n  \"mcpServers\": {\n    \"b\": 1, // last\n    /* behind */\n    \
             \"earshot\": {\n      \"command\": \"earshot\",\n      \"args\": [\"mcp\"]\n    },\n  \
             },\n}\n",
        ),
        (
            "{\n  \"mcpServers\": {\n    \"b\": 1 // last\n  }\n}\n",
            "{\n  \"mcpServers\": {\n    \"b\": 1, // last\n    \"earshot\": {\n      \"command\": \
             \"earshot\",\n      \"args\": [\"mcp\"]\n    }\n  }\n}\n",
        ),
    ] {
        assert_eq!(there_and_back(Language::Json, before, &[small()]), after);
    }
}

#[test]
fn whatever_json_was_there_is_there_again_afterwards() {
    for text in [
        "",
        "\n",
        "\r\n\r\n",
        "{}",
        "{ }\n",
        "{\n}\n",
        "{\n\n}",
        "// nothing yet",
        "/* nothing */\n",
        "{ // nothing\n}",
        "{ /* nothing */ }",
        "{\"hooks\": {}}",
        "{\"hooks\": {\"SessionStart\": []}}\n",
        "{\"hooks\": {\"SessionStart\": [ {\"hooks\": []} ]}, \"mcpServers\": {\"b\": {}}}",
        "{\n  \"hooks\": {\n    \"SessionStart\": [\n      { \"hooks\": [] },\n    ],\n  },\n}\n",
        "{\"a\": 1,\n \"hooks\": {\"Stop\": []}}",
        "{\n    \"a\": [1,\n 2],\n    \"mcpServers\": { \"b\": {} }\n}",
        "{\"a\": \"{ // no comment, }\"}",
        "{\n\"ä\": \"ö\" /* ü */ }",
        "{\r\n  \"a\": 1\r\n}\r\n",
    ] {
        there_and_back(Language::Json, text, &gemini().parts);
    }
}

#[test]
fn tables_are_put_at_the_end_of_toml_and_taken_out_again() {
    let end = |text: &str| {
        let after = there_and_back(Language::Toml, text, &codex().parts);
        after.strip_prefix(text).unwrap().to_owned()
    };
    let own = end("");
    assert!(
        own.starts_with("[mcp_servers.earshot]\ncommand = \"earshot\"\nargs = [\"mcp\"]\nenv_vars")
    );
    assert!(own.ends_with(
        "]\n\n[[hooks.SessionStart]]\n[[hooks.SessionStart.hooks]]\ntype = \"command\"\ncommand = \
         \"earshot context --hook\"\ntimeout = 5\n"
    ));
    assert_eq!(end("a = 1\n"), format!("\n{own}"));
    // No line end at the end of the file before, none after.
    assert_eq!(end("a = 1"), format!("\n\n{}", own.trim_end()));
    assert_eq!(end("a = 1\r\n"), format!("\n{own}").replace('\n', "\r\n"));
    for text in [
        "\n",
        "# nothing yet",
        "# nothing yet\n\n\n",
        "[mcp_servers.b]\ncommand = \"b\"\n",
        "[mcp_servers]\nb.command = \"b\"\n",
        "mcp_servers.b.command = \"b\" # dotted\n",
        "[[hooks.SessionStart]]\nmatcher = \"startup\"\n[[hooks.SessionStart.hooks]]\ncommand = \"b\"",
        "[hooks]\nStop = []\n[a]\nb = '''\n[hooks]\n'''\nc = \"[mcp_servers.earshot]\"\n",
    ] {
        end(text);
    }
}

#[test]
fn what_stands_against_it_is_named_with_its_line() {
    let earshot = r#"{"command": "npx", "args": ["mcp"]}"#;
    for (text, line, why) in [
        ("{\n\"a\": }", 2, "it is no JSON: Unexpected close brace"),
        ("{\n\n\"a\": 1", 1, "it is no JSON: Unterminated object"),
        ("[]\n", 1, "the document is not an object"),
        (
            "\n{'a': 1}",
            2,
            "it is no JSON: Single-quoted strings are not allowed",
        ),
        ("{\n\"mcpServers\": []}", 2, "`mcpServers` is not an object"),
        (
            "{\"mcpServers\": {},\n\"mcpServers\": {}}",
            2,
            "`mcpServers` is there twice",
        ),
        (
            &format!("{{\"mcpServers\": {{\n\n\"earshot\": {earshot}}}}}"),
            3,
            "`mcpServers.earshot` is there already and does not start earshot",
        ),
    ] {
        let refused = document::put(Language::Json, &mut Grown::new(text.to_owned()), &small());
        let Err(Broken {
            line: at,
            why: said,
            remedy,
        }) = refused
        else {
            panic!("{refused:?} for {text:?}");
        };
        assert_eq!((at, said.as_str()), (line, why), "{text:?}");
        assert!(remedy.ends_with('.'));
    }
}

#[test]
fn what_stands_against_it_in_toml_is_named_with_its_line() {
    let file = codex();
    for (text, part, line, why) in [
        ("a = 1\nb =\n", 0, 2, "it is no TOML: "),
        (
            "a = 1\n\nmcp_servers = {}\n",
            0,
            3,
            "`mcp_servers` is written inline",
        ),
        ("mcp_servers = 1\n", 0, 1, "`mcp_servers` is not an object"),
        (
            "# x\n[hooks]\nSessionStart = [{ hooks = [] }]\n",
            1,
            3,
            "`hooks.SessionStart` is written inline",
        ),
        (
            "[mcp_servers]\na.b = 1\nearshot = { command = 'x' }\n",
            0,
            3,
            "`mcp_servers.earshot` is there already",
        ),
        (
            "mcp_servers = { earshot = { command = '/x/earshot', args = ['mcp'] } }",
            0,
            1,
            "`mcp_servers.earshot` is there already",
        ),
    ] {
        let mut grown = Grown::new(text.to_owned());
        let refused = document::put(Language::Toml, &mut grown, &file.parts[part]);
        match refused {
            Err(refused) => {
                assert_eq!(refused.line, line, "{text:?}: {refused:?}");
                assert!(refused.why.starts_with(why), "{text:?}: {refused:?}");
            }
            Ok(Done::Kept(at)) => assert_eq!(at, line, "{text:?}"),
            other => panic!("{other:?} for {text:?}"),
        }
    }
}

#[test]
fn another_path_of_the_executable_takes_the_place_of_the_one_before() {
    for (language, file, place) in [
        (Language::Json, gemini(), "\"command\": \"earshot\""),
        (Language::Toml, codex(), "command = \"earshot\""),
    ] {
        let (grown, _) = put_all(language, "", &file.parts);
        let others = match language {
            Language::Json => "{ // mine\n",
            Language::Toml => "# mine\n",
        };
        let before = grown.text().replacen("{\n", others, 1);
        let before = before.replace("mcp_servers.earshot", "mcp_servers.'earshot'");
        assert!(before.contains(place));
        let program = "/new place/earshot";
        let files = Client::ALL.into_iter().flat_map(|it| it.files(program));
        let newer = files.into_iter().find(|it| it.path == file.path).unwrap();
        let mut updated = Grown::new(before.clone());
        for part in &newer.parts {
            assert_eq!(
                document::put(language, &mut updated, part),
                Ok(Done::Updated)
            );
        }
        let expected = before
            .replace(
                "\"earshot context --hook\"",
                "\"'/new place/earshot' context --hook\"",
            )
            .replace(place, &place.replace("earshot", program));
        assert_eq!(updated.text(), expected);
    }
}

#[test]
fn only_what_is_still_as_init_wrote_it_is_taken_out() {
    let part = small();
    let (grown, margins) = put_all(
        Language::Json,
        "{\"mcpServers\": {}}",
        std::slice::from_ref(&part),
    );
    let take = |text: &str| document::take(Language::Json, text, &part, Some(&margins[0])).unwrap();
    let after = grown.text();
    // Written differently, it is the same.
    let reformatted =
        r#"{"a":0,"mcpServers":{"earshot":{"args":["mcp"],"command":"earshot"},"b":1}}"#;
    assert_eq!(
        take(reformatted),
        Taken::Out(r#"{"a":0,"mcpServers":{"b":1}}"#.to_owned())
    );
    let more = after.replace("[\"mcp\"]", "[\"mcp\", \"--standalone\"]");
    assert_eq!(take(&more), Taken::Stays(2));
    let other = after.replace("\"command\": \"earshot\"", "\"command\": \"npx\"");
    assert_eq!(take(&other), Taken::Stays(2));
    assert_eq!(take("{}"), Taken::Absent);
    assert!(document::take(Language::Json, "{", &part, None).is_err());
    // Something that came to stand behind it stays, and the commas are right.
    let followed = after.replacen("\n    }", "\n    }, \"b\": 1", 1);
    assert_eq!(followed, after, "the shape of the file is another one");
    let followed = after.replacen("]\n  }", "]\n  }, \"b\": 1", 1);
    assert_ne!(followed, after);
    let Taken::Out(rest) = take(&followed) else {
        panic!("{followed}");
    };
    assert_eq!(
        serde_json::from_str::<Value>(&rest).unwrap(),
        json!({"mcpServers": {"b": 1}})
    );
}

#[test]
fn a_hook_goes_from_among_others_hooks() {
    let part = &gemini().parts[1];
    let own = part.value["hooks"][0].clone();
    let text =
        json!({"hooks": {"SessionStart": [{"hooks": [{"command": "make"}, own]}]}}).to_string();
    let taken = document::take(Language::Json, &text, part, Some(&Margins::default()));
    let rest = json!({"hooks": {"SessionStart": [{"hooks": [{"command": "make"}]}]}}).to_string();
    assert_eq!(taken, Ok(Taken::Out(rest)));
}

#[test]
fn without_a_record_own_entries_are_known_by_their_form() {
    for (language, file) in [(Language::Json, gemini()), (Language::Toml, codex())] {
        let elsewhere = file.client.files("/else where/earshot").remove(0);
        let (grown, _) = put_all(language, "", &elsewhere.parts);
        let mut rest = grown.text().to_owned();
        for part in file.parts.iter().rev() {
            match document::take(language, &rest, part, None) {
                Ok(Taken::Out(without)) => rest = without,
                other => panic!("{other:?}"),
            }
        }
        assert!(document::is_void(language, &rest), "{rest:?}");
    }
    let own_words = r#"{"mcpServers": {"earshot": {"command": "earshot", "args": ["mcp", "-x"]}}}"#;
    let taken = document::take(Language::Json, own_words, &small(), None);
    assert_eq!(taken, Ok(Taken::Absent));
}

/// Blanks and comments as they stand between tokens.
fn gap() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => Just(String::new()),
        3 => Just(" ".to_owned()),
        2 => Just("\n  ".to_owned()),
        1 => Just("\r\n\t".to_owned()),
        1 => Just(" // a, \"b\": {\n".to_owned()),
        1 => Just("/* } ] */".to_owned()),
    ];
    proptest::collection::vec(piece, 0..3).prop_map(|pieces| pieces.concat())
}

fn scalar() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("null".to_owned()),
        "-?[1-9][0-9]{0,2}(\\.[0-9])?".prop_map(String::from),
        "[a-zé{}\\[\\],:/ ]{0,6}".prop_map(|text| Value::from(text).to_string()),
    ]
}

/// Joins members or elements in brackets, with gaps everywhere and perhaps a trailing comma.
fn bracketed(
    brackets: [&'static str; 2],
    inside: impl Strategy<Value = Vec<String>>,
) -> impl Strategy<Value = String> {
    let gaps = proptest::collection::vec((gap(), gap()), 8);
    (inside, gaps, any::<bool>(), gap()).prop_map(move |(inside, gaps, trailing, end)| {
        let count = inside.len();
        let mut text = brackets[0].to_owned();
        for (at, (it, (before, behind))) in inside.iter().zip(&gaps).enumerate() {
            let comma = if at + 1 < count || trailing { "," } else { "" };
            text.push_str(&format!("{before}{it}{behind}{comma}"));
        }
        format!("{text}{end}{}", brackets[1])
    })
}

fn jsonc(depth: u32) -> BoxedStrategy<String> {
    if depth == 0 {
        return scalar().boxed();
    }
    let elements = proptest::collection::vec(jsonc(depth - 1), 0..4);
    prop_oneof![
        scalar(),
        object(["a", "b", "c", "d"], depth),
        bracketed(["[", "]"], elements),
    ]
    .boxed()
}

fn object(names: [&'static str; 4], depth: u32) -> impl Strategy<Value = String> {
    let members = proptest::collection::vec((gap(), jsonc(depth - 1)), 0..4);
    let named = members.prop_map(move |members| {
        let members = names.iter().zip(members);
        let written = members.map(|(name, (gap, value))| format!("\"{name}\":{gap}{value}"));
        written.collect::<Vec<String>>()
    });
    bracketed(["{", "}"], named)
}

/// A settings file: servers, hooks and other things may be there, in any form.
fn settings() -> impl Strategy<Value = String> {
    let groups = bracketed(
        ["[", "]"],
        proptest::collection::vec(object(["matcher", "x", "y", "z"], 2), 0..3),
    );
    let hooks = bracketed(
        ["{", "}"],
        (jsonc(1), proptest::option::of(groups)).prop_map(|(other, groups)| {
            let groups = groups.map(|groups| format!("\"SessionStart\": {groups}"));
            [Some(format!("\"Stop\":{other}")), groups]
                .into_iter()
                .flatten()
                .collect()
        }),
    );
    let servers = object(["s", "t", "u", "v"], 2);
    let members = (
        proptest::option::of(servers),
        proptest::option::of(hooks),
        proptest::option::of(jsonc(2)),
    );
    let members = members.prop_map(|(servers, hooks, other)| {
        let named = [("other", other), ("mcpServers", servers), ("hooks", hooks)];
        let there = named.into_iter().filter_map(|(name, it)| Some((name, it?)));
        there
            .map(|(name, it)| format!("\"{name}\": {it}"))
            .collect()
    });
    (gap(), bracketed(["{", "}"], members), gap())
        .prop_map(|(before, root, behind)| format!("{before}{root}{behind}"))
}

/// A configuration in TOML, of tables in any order.
fn configuration() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        Just("# [mcp_servers.earshot]".to_owned()),
        Just(String::new()),
        Just("  \t".to_owned()),
    ];
    let pair = prop_oneof![
        Just("k = 1"),
        Just("\"q.r\" = { x = [1, { y = 2 }] } # c"),
        Just("m = \"\"\"\n[hooks]\n\"\"\""),
        Just("d.e = 1979-05-27T07:32:00Z"),
        Just("l = [\n  'a', # b\n]"),
    ];
    let table = prop_oneof![
        Just("[t{}]"),
        Just("[mcp_servers.s{}]"),
        Just("[[hooks.SessionStart]]"),
        Just("[[hooks.Stop]]"),
        Just(" [ 'x y'.z{} ] # c"),
    ];
    let lines = || proptest::collection::vec(line.clone(), 0..3);
    let pairs = proptest::sample::subsequence(vec![0_usize, 1, 2, 3, 4], 0..4);
    let section = (
        table,
        lines(),
        proptest::collection::vec(pair, 5),
        pairs,
        lines(),
    );
    let sections = proptest::collection::vec(section, 0..5);
    let ends = (any::<bool>(), any::<bool>());
    (lines(), sections, ends).prop_map(|(first, sections, (windows, closed))| {
        let mut all = first;
        for (number, (table, before, pairs, chosen, behind)) in sections.into_iter().enumerate() {
            all.push(table.replace("{}", &number.to_string()));
            all.extend(before);
            let mut distinct: Vec<&str> = chosen.into_iter().map(|at| pairs[at]).collect();
            distinct.sort_unstable();
            distinct.dedup();
            all.extend(distinct.into_iter().map(str::to_owned));
            all.extend(behind);
        }
        let mut text = all.join("\n");
        if closed {
            text.push('\n');
        }
        if windows {
            text.replace('\n', "\r\n")
        } else {
            text
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn init_and_undo_of_any_json_is_the_identity(text in settings()) {
        let after = there_and_back(Language::Json, &text, &gemini().parts);
        prop_assert!(after.len() > text.len());
    }

    #[test]
    fn init_and_undo_of_any_toml_is_the_identity(text in configuration()) {
        let after = there_and_back(Language::Toml, &text, &codex().parts);
        prop_assert!(after.starts_with(&text));
        // What was there still says the same.
        let (old, mut new): (::toml::Table, ::toml::Table) =
            (text.parse().unwrap(), after.parse().unwrap());
        let servers = new["mcp_servers"].as_table_mut().unwrap();
        servers.remove("earshot");
        if !old.contains_key("mcp_servers") {
            new.remove("mcp_servers");
        }
        let hooks = new["hooks"].as_table_mut().unwrap();
        hooks["SessionStart"].as_array_mut().unwrap().pop();
        if old.get("hooks").is_none_or(|it| it.get("SessionStart").is_none()) {
            hooks.remove("SessionStart");
        }
        if !old.contains_key("hooks") {
            new.remove("hooks");
        }
        prop_assert_eq!(old, new);
    }

    #[test]
    fn nothing_that_is_read_makes_it_panic(text in "[{}\\[\\]\",:a=#/*'\n .]{0,40}") {
        for (language, file) in [(Language::Json, gemini()), (Language::Toml, codex())] {
            for part in &file.parts {
                document::put(language, &mut Grown::new(text.clone()), part).ok();
                document::take(language, &text, part, None).ok();
            }
        }
    }
}

#[test]
fn a_part_is_found_where_it_was_put() {
    for (language, file) in [(Language::Json, gemini()), (Language::Toml, codex())] {
        let (grown, _) = put_all(language, "", &file.parts);
        let value: Value = match language {
            Language::Json => serde_json::from_str(grown.text()).unwrap(),
            Language::Toml => {
                serde_json::to_value(grown.text().parse::<::toml::Table>().unwrap()).unwrap()
            }
        };
        for part in &file.parts {
            assert!(matches!(part.find(&value), Found::Same(_)), "{value}");
        }
    }
}
