use super::*;
use memtrack_model::event::{Action, DeviceId, Event, EventFlags, ScopeId, StackId, StreamId, ThreadId};
use memtrack_model::snapshot::{Clock, Snapshot};
use memtrack_report::ranks::{DigestOptions, RankDigest, Unread};
use memtrack_report::top::By;
use memtrack_symbols::Symbolizer;
use quick_xml::Reader;
use quick_xml::events::Event as Xml;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const MIB: u64 = 1 << 20;
/// A text that, unless escaped, would end any element, attribute or section around it.
const HOSTILE: &str = "</script></title></style><script>alert(1)</script>]]>--><img/src=x/onerror=alert(1)>\"'`\0\u{7}\u{1b}\u{202e}\u{ffff}&lt;";

/// Creates a rank that allocates `mib[step]` MiB in each step and frees the memory again.
fn rank_digest(file: &str, mib: &[u64]) -> RankDigest {
    let mut snapshot =
        Snapshot { clock: Clock { first: (0, 7_000), last: (1_000_000, 1_007_000) }, ..Snapshot::default() };
    for (step, mib) in mib.iter().enumerate() {
        let ticks = 1_000 * step as u64;
        let block = Event {
            ticks: ticks + 10,
            address: 0x1000,
            size_bytes: mib * MIB,
            stream: StreamId(0),
            stack: StackId::NONE,
            scope: ScopeId::NONE,
            thread: ThreadId(1),
            device: DeviceId(0),
            action: Action::Alloc,
            flags: EventFlags::default(),
        };
        snapshot.events.push(&block);
        snapshot.events.push(&Event { ticks: ticks + 500, action: Action::Free, ..block });
        snapshot.marks.push(ticks + 900, ThreadId(1), "step");
    }
    let mut symbols = Symbolizer::of(&snapshot);
    RankDigest::of(&snapshot, &mut symbols, Path::new(file), true, &DigestOptions::new().bins(MAX_COLUMNS))
}

/// Creates `count` ranks with six steps each, in which the memory of rank `growing` grows.
fn growing_ranks(count: usize, growing: usize) -> Ranks {
    let one = |rank: usize| {
        let mib: Vec<u64> = (0..6).map(|step| 100 + if rank == growing { 10 * step } else { 0 }).collect();
        rank_digest(&format!("run/rank{rank}.pickle"), &mib)
    };
    Ranks::of((0..count).map(one).collect(), By::Line, Vec::new()).unwrap()
}

fn render_page(ranks: &Ranks) -> String {
    html(ranks, &vec![None; ranks.ranks.len()])
}

/// The elements, ids, links and text of a well-formed page.
#[derive(Debug, Default)]
struct Parsed {
    elements: BTreeMap<String, usize>,
    ids: BTreeSet<String>,
    links: Vec<String>,
    text: String,
}

/// Parses a page, and checks that nothing in it could run or use the network, whatever the names are.
#[track_caller]
fn parse(document: &str) -> Parsed {
    let mut document = document.to_owned();
    // Scripts, their data and styles are not XML.
    for (name, end) in [("<script", "</script>"), ("<style", "</style>")] {
        let mut at = 0;
        while let Some(begin) = document[at..].find(name) {
            let from = at + begin + document[at + begin..].find('>').unwrap() + 1;
            let to = from + document[from..].find(end).unwrap();
            document.replace_range(from..to, "");
            at = from;
        }
    }
    // Elements without content have no end in HTML.
    for name in ["<meta ", "<input ", "<img "] {
        let mut at = 0;
        while let Some(begin) = document[at..].find(name) {
            at += begin + document[at + begin..].find('>').unwrap();
            document.insert(at, '/');
        }
    }
    assert!(
        document.chars().all(|c| matches!(c, '\n' | ' '..='\u{7e}' | '\u{a0}'..='\u{fffd}')),
        "characters of XML only"
    );
    let mut reader = Reader::from_str(&document);
    reader.config_mut().check_end_names = true;
    let mut parsed = Parsed::default();
    let mut open = 0;
    loop {
        let event = reader.read_event().unwrap();
        let element = match &event {
            Xml::Start(element) => {
                open += 1;
                element
            }
            Xml::Empty(element) => element,
            Xml::End(_) => {
                open -= 1;
                continue;
            }
            Xml::Text(text) => {
                parsed.text += &text.decode().unwrap();
                continue;
            }
            Xml::GeneralRef(name) => {
                parsed.text += &format!("&{};", name.decode().unwrap());
                continue;
            }
            Xml::Eof => break,
            Xml::DocType(_) => continue,
            other => panic!("{other:?}"),
        };
        let name = String::from_utf8(element.name().0.to_vec()).unwrap();
        for attribute in element.attributes() {
            let attribute = attribute.unwrap();
            let key = String::from_utf8(attribute.key.0.to_vec()).unwrap();
            let value = String::from_utf8(attribute.value.to_vec()).unwrap();
            match &key[..] {
                "id" => assert!(parsed.ids.insert(value.clone()), "{value} twice"),
                "href" => parsed.links.push(value),
                "src" => assert!(value.starts_with("data:image/png;base64,"), "{name} {value}"),
                key => assert!(!key.starts_with("on") && !["srcdoc", "action"].contains(&key), "{key}"),
            }
        }
        assert!(!["iframe", "object", "link", "base", "form", "use"].contains(&&name[..]), "{name}");
        *parsed.elements.entry(name).or_default() += 1;
    }
    assert_eq!(open, 0);
    for link in parsed.links.iter().filter_map(|link| link.strip_prefix('#')) {
        assert!(parsed.ids.contains(link), "#{link} leads nowhere");
    }
    assert!(!document.contains("@import") && !document.contains("url("));
    parsed
}

#[test]
fn answer_with_moment_of_change_comes_first() {
    let page = render_page(&growing_ranks(8, 5));
    let parsed = parse(&page);
    let answer = "Rank 5 peaks higher than the others: 150.0 MiB, 50.0 MiB more than the median of 100.0 MiB. Rank 5 holds more \
                  than the others since step 1.";
    assert!(parsed.text.contains(answer), "{}", parsed.text);
    assert!(page.find("class=\"answer\"").unwrap() < page.find("<figure").unwrap());
    assert_eq!((parsed.elements["img"], parsed.elements["svg"]), (2, 1));
    // The table has a row for each of the eight ranks.
    assert!(page.matches("<tr id=\"m0-r").count() == 8 && page.contains("<tr id=\"m0-r5\" class=\"odd\">"));
    assert!(
        parsed.text.contains("peak +50.0 MiB; holds more than the others since step 1"),
        "{}",
        parsed.text
    );
}

#[test]
fn rank_with_page_links_to_it_everywhere() {
    let ranks = growing_ranks(4, 3);
    let links: Vec<Option<String>> =
        (0..4).map(|rank| (rank != 2).then(|| format!("own/a%20{rank}.html"))).collect();
    let parsed = parse(&html(&ranks, &links));
    let times = |link: &str| parsed.links.iter().filter(|one| *one == link).count();
    // Each rank is named beside its row and in the table. The outlier is also named at its line and beside the map.
    assert_eq!((times("own/a%200.html"), times("own/a%203.html")), (2, 4));
    assert_eq!(times("#m0-r2"), 1);
}

#[test]
fn names_are_never_markup() {
    let mut digests: Vec<RankDigest> =
        (0..4).map(|rank| rank_digest(&format!("{HOSTILE}{rank}x"), &[100; 6])).collect();
    digests[1] = rank_digest(&format!("{HOSTILE}x"), &[300; 6]);
    digests[1].devices[0].at_peak.iter_mut().for_each(|group| group.name = HOSTILE.into());
    digests[1].devices[0].at_peak.iter_mut().for_each(|group| group.key = HOSTILE.into());
    for digest in &mut digests {
        digest.job = Some(HOSTILE.into());
        digest.step_name = Some(HOSTILE.into());
    }
    let ranks =
        Ranks::of(digests, By::Line, vec![Unread { path: HOSTILE.into(), why: HOSTILE.into() }]).unwrap();
    assert!(ranks.has_outliers());
    let page = html(&ranks, &[Some(HOSTILE.into()), None, None, None]);
    // One of them ends the page's script and the other the data of its only map, so no name has added any.
    assert_eq!(page.matches("</script").count(), 2);
    let parsed = parse(&page);
    assert!(parsed.elements["script"] == 2 && parsed.text.contains("alert(1)"), "it is shown as what it is");
}

#[test]
fn page_size_is_bounded_for_any_number_of_ranks() {
    // Random data cannot be compressed, so this is the worst case.
    let mut state = 1u64;
    let mut noise = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 34
    };
    let one = rank_digest("rank0.pickle", &[100; 6]);
    let mut many = |count: u64, columns: usize| {
        let rank = |number: u64| {
            let mut digest = one.clone();
            (digest.rank, digest.file) = (Some(number), format!("/scratch/job/run/rank{number}.pickle"));
            digest.step_name = None;
            digest.devices[0].timeline.requested_bytes = (0..columns).map(|_| noise()).collect();
            digest
        };
        Ranks::of((0..count).map(rank).collect(), By::Line, Vec::new()).unwrap()
    };
    let thousand = render_page(&many(1024, MAX_COLUMNS));
    assert!(thousand.len() < 5 << 20, "{}", thousand.len());
    let more = render_page(&many(5_000, 64));
    assert!(more.len() < 2 << 20, "{}", more.len());
    let parsed = parse(&more);
    assert!(parsed.text.contains("5,000 ranks, 10 in each row"), "it is said that rows are shared");
    assert!(parsed.text.contains("… and 904 more ranks"), "and that the table has not all");
}

#[test]
fn one_or_two_ranks_have_no_median() {
    for count in [1, 2] {
        let page = render_page(&growing_ranks(count, 0));
        let parsed = parse(&page);
        assert_eq!(parsed.elements["img"], 1);
        assert!(!parsed.elements.contains_key("input"));
        assert!(parsed.text.contains("Cannot determine the odd rank"), "{}", parsed.text);
    }
    let none = Ranks::of(vec![rank_digest("rank0.pickle", &[])], By::Line, Vec::new()).unwrap();
    assert!(parse(&render_page(&none)).text.contains("None of them holds any memory."));
}

#[test]
fn policy_allows_this_script_and_no_other() {
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
