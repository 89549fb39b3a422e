use super::*;
use crate::graph::{Graph, Origin};
use crate::picture::svg::svg;
use crate::testing::graph;
use quick_xml::Reader;
use quick_xml::events::Event;
use std::collections::{BTreeMap, BTreeSet};

const TRAINER: &str = "Trainer .hooks[0] Hook
    Hook .owner Trainer
    Trainer .model Model
    Model .weight Buffer
    Buffer = 1073741824
    Session .this Session
    Session .buffer Other
    Other = ?
    Session held 2";

/// Ends whatever it is in, if it is not escaped.
const HOSTILE: &str = "</script></title></style><script>alert(1)</script>]]>--><img/src=x/onerror=alert(1)>\"'`\0\u{7}\u{1b}\u{202e}\u{ffff}&lt;";

fn page(graph: &Graph) -> String {
    html(graph, &Findings::of(graph), "test")
}

/// The elements of a document, and its text, where it is well-formed.
#[derive(Debug, Default)]
struct Parsed {
    elements: BTreeMap<String, usize>,
    attributes: BTreeSet<String>,
    ids: BTreeSet<String>,
    links: BTreeSet<String>,
    text: String,
}

#[track_caller]
fn parsed(document: &str) -> Parsed {
    // Scripts and styles are no XML.
    let mut document = document.to_owned();
    for name in ["script", "style"] {
        let mut from = 0;
        while let Some(at) = document[from..].find(&format!("<{name}>")) {
            let begin = from + at + name.len() + 2;
            let end = begin + document[begin..].find(&format!("</{name}>")).unwrap();
            document.replace_range(begin..end, "");
            from = begin;
        }
    }
    assert!(
        document.chars().all(|c| matches!(c, '\n' | ' '..='\u{7e}' | '\u{a0}'..='\u{fffd}')),
        "characters of XML only"
    );
    let mut reader = Reader::from_str(&document);
    reader.config_mut().check_end_names = true;
    let (mut parsed, mut open) = (Parsed::default(), 0);
    loop {
        let event = reader.read_event().unwrap();
        let element = match &event {
            Event::Start(element) => {
                open += 1;
                element
            }
            Event::Empty(element) => element,
            Event::End(_) => {
                open -= 1;
                continue;
            }
            Event::Text(text) => {
                parsed.text += &text.decode().unwrap();
                continue;
            }
            Event::GeneralRef(name) => {
                parsed.text += &format!("&{};", name.decode().unwrap());
                continue;
            }
            Event::Eof => break,
            Event::DocType(_) => continue,
            other => panic!("{other:?}"),
        };
        *parsed.elements.entry(String::from_utf8(element.name().0.to_vec()).unwrap()).or_default() += 1;
        for attribute in element.attributes() {
            let attribute = attribute.unwrap();
            let name = String::from_utf8(attribute.key.0.to_vec()).unwrap();
            let value = String::from_utf8(attribute.value.to_vec()).unwrap();
            match &name[..] {
                "id" => assert!(parsed.ids.insert(value.clone()), "{value} twice"),
                "href" => drop(parsed.links.insert(value)),
                _ => {}
            }
            parsed.attributes.insert(name);
        }
    }
    assert_eq!(open, 0);
    parsed
}

/// What no page has, whatever its labels are.
#[track_caller]
fn is_harmless(document: &str) -> Parsed {
    let parsed = parsed(document);
    for name in parsed.elements.keys() {
        assert!(
            !["img", "iframe", "object", "link", "base", "form", "image", "use", "foreignObject"]
                .contains(&&name[..]),
            "{name}"
        );
    }
    for name in &parsed.attributes {
        assert!(
            !name.starts_with("on") && !["src", "style", "srcdoc", "action"].contains(&&name[..]),
            "{name}"
        );
    }
    for link in &parsed.links {
        assert!(parsed.ids.contains(link.strip_prefix('#').unwrap()), "{link} leads nowhere");
    }
    assert!(!document.contains("@import") && !document.replace("url(#", "").contains("url("));
    parsed
}

#[test]
fn the_page_says_what_was_found() {
    let graph = graph(Origin::Rust, TRAINER);
    let page = page(&graph);
    let parsed = is_harmless(&page);
    for said in [
        "1 cycle that nothing else holds keeps 1.00 GiB",
        "make weak: Hook .owner → Trainer",
        "held only by itself",
        "still held from outside (2 strong pointers): no leak yet",
    ] {
        assert!(parsed.text.replace("&gt;", ">").contains(said), "{said}\n{}", parsed.text);
    }
    assert!(
        page.contains(
            ">Trainer</a> <code>.hooks[0]</code> → <a href=\"#n1\">Hook</a> <code>.owner</code> → "
        ),
        "the way around"
    );
    assert!(page.contains("<tspan class=\"weak\"") && page.contains("make weak: .owner</tspan>"));
    assert!(page.contains("data-from=\"4\" data-to=\"4\""), "the reference to itself is drawn");
    assert_eq!(parsed.elements["script"], 1);
    assert_eq!(page, self::page(&graph), "the same page of the same graph");
}

#[test]
fn a_picture_alone_is_a_file_of_its_own() {
    let graph = graph(Origin::Rust, TRAINER);
    let svg = svg(&graph, &Findings::of(&graph));
    let parsed = is_harmless(&svg);
    assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\"") && parsed.links.is_empty());
    assert!(
        parsed.elements["title"] >= 6
            && !parsed.elements.contains_key("a")
            && !parsed.elements.contains_key("script")
    );
    assert!(svg.contains("prefers-color-scheme: dark"));
}

#[test]
fn sizes_that_are_not_known_are_not_made_up() {
    let text = "f .c t
        t .d f
        t = ?";
    let page = page(&graph(Origin::Python, text));
    let parsed = is_harmless(&page);
    assert!(parsed.text.contains("1 device buffer of unknown size") && parsed.text.contains("size unknown"));
    assert!(!parsed.text.contains(" 0 B") && !parsed.text.contains("Kept alive by"));
}

#[test]
fn labels_neither_end_what_they_are_in_nor_run() {
    let mut graph = graph(Origin::Rust, TRAINER);
    let bad = |graph: &mut Graph, more: &str| graph.texts.number(&format!("{HOSTILE}{more}"));
    for at in 0..graph.nodes.len() {
        let (label, stack) = (bad(&mut graph, &at.to_string()), bad(&mut graph, "\nframe\r\n\u{2028}"));
        let node = &mut graph.nodes[at];
        (node.label, node.allocated, node.created, node.incomplete) =
            (label, Some(stack), Some(stack), Some(stack));
    }
    for at in 0..graph.edges.len() {
        graph.edges[at].path = bad(&mut graph, &at.to_string());
    }
    for at in 0..graph.memory.len() {
        graph.memory[at].device = bad(&mut graph, "");
    }
    graph.remarks.push(HOSTILE.into());
    let (site, scope) = (HOSTILE.into(), Some(HOSTILE.into()));
    graph.unexplained.push(crate::graph::Unexplained { node: 0, handles: 1, site, scope, ended_roots: 3 });
    let findings = Findings::of(&graph);
    let parsed = is_harmless(&html(&graph, &findings, HOSTILE));
    assert_eq!(parsed.elements["script"], 1);
    assert!(parsed.text.contains("alert(1)"), "it is shown as what it is");
    is_harmless(&svg(&graph, &findings));
}

#[test]
fn a_label_of_a_megabyte_makes_no_large_page() {
    let mut graph = graph(Origin::Rust, TRAINER);
    for (at, text) in
        ["x".repeat(1 << 20), "é\n".repeat(1 << 19), "\n".repeat(1 << 20)].into_iter().enumerate()
    {
        let number = graph.texts.number(&text);
        let node = &mut graph.nodes[at];
        (node.label, node.allocated, node.created) = (number, Some(number), Some(number));
        graph.edges[at].path = number;
        graph.remarks.push(text);
    }
    let page = page(&graph);
    is_harmless(&page);
    assert!(page.len() < 250_000, "{}", page.len());
    assert!(page.contains("of text left out"));
}

/// Many cycles with a buffer each, which lead to each other.
fn rings(count: usize) -> Graph {
    let mut text = String::new();
    for ring in 0..count {
        for at in 0..5 {
            text += &format!("T{at}#{ring} .f{at} T{}#{ring}\n", (at + 1) % 5);
        }
        text += &format!(
            "T3#{ring} .buffer Buffer#{ring}\nBuffer#{ring} = 4096\nT1#{ring} .peer T2#{}\n",
            ring / 2
        );
    }
    graph(Origin::Rust, &text)
}

#[test]
fn what_is_too_much_to_look_at_is_counted() {
    let graph = rings(200);
    let page = page(&graph);
    let parsed = is_harmless(&page);
    assert!(
        page.contains("900 more values are not drawn or listed here"),
        "{}",
        &parsed.text[..2000.min(parsed.text.len())]
    );
    assert_eq!(page.matches("data-node=").count(), 300);
    assert_eq!(page.matches("<tr id=\"v").count(), 300);
    let first = Findings::of(&graph).cycles[0].nodes[0];
    assert!(page.contains(&format!("data-node=\"{first}\"")), "the worst cycle is drawn");
}

#[test]
fn a_value_with_very_many_references_takes_no_more_room() {
    let mut text = String::from("Hub = 100\n");
    for at in 0..4000 {
        text += &format!("Hub .items[{}] Item#{}\nItem#{} .hub Hub\n", at, at % 500, at % 500);
    }
    let page = page(&graph(Origin::Rust, &text));
    is_harmless(&page);
    assert!(page.len() < 1_500_000, "{}", page.len());
    assert!(page.contains("… 3,976 more"));
}

#[test]
fn an_empty_graph_has_a_page_that_says_so() {
    for origin in [Origin::Python, Origin::Rust] {
        let page = page(&Graph::new(origin));
        is_harmless(&page);
        assert!(page.contains("nothing to draw") && !page.contains("<svg"));
        is_harmless(&svg(&Graph::new(origin), &Findings::default()));
    }
}

#[test]
fn the_policy_allows_this_script_and_no_other() {
    use base64::Engine as _;
    use sha2::Digest as _;
    assert!(!SCRIPT.to_ascii_lowercase().contains("</script") && !STYLE.contains("</style"));
    let hash = base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(SCRIPT));
    assert_eq!(
        SCRIPT_SHA256.trim(),
        hash,
        "page.js has changed: openssl dgst -sha256 -binary page.js | base64 > page.sha256"
    );
    for forbidden in
        ["innerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch(", "http:", "https:"]
    {
        assert!(!SCRIPT.contains(forbidden), "{forbidden}");
    }
}
