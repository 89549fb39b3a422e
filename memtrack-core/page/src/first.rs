//! The part of a page that is visible before any click. It consists of the summary's sentences, each with the view of
//! the page that shows its subject.

use crate::head::{PageState, Sentence};
use crate::trace::Trace;
use memtrack_blocks::reserved::ReservedPeak;
use memtrack_model::event::DeviceId;
use memtrack_model::paths::file_name;
use memtrack_report::summary::{DeviceSummary, HintSubject, origin_of};
use memtrack_report::top::TopRow;

/// The title of the lines that suggest what to inspect first.
const LOOK_FIRST_TITLE: &str = "Look first at";

/// The title of the line about the highest point of reserved memory.
const RESERVED_PEAK_TITLE: &str = "Reserved peak";

/// The title of the line about the categories at the peak.
pub(crate) const BY_CATEGORY_TITLE: &str = "Peak by category";

/// Returns the sentences about a device.
pub(crate) fn build_sentences(summary: &DeviceSummary, trace: &Trace<'_>, device: DeviceId) -> Vec<Sentence> {
    let at = |view, event: Option<i64>| Some(PageState { view: Some(view), event, query: None });
    let last = trace.len() as i64 - 1;
    let peak = summary.peak.highest.event.map_or(-1, |event| event as i64);
    let reserved = ReservedPeak::of(trace.snapshot, device).row.and_then(|row| trace.event_of_row(row));
    let made_of_categories = summary.peak.categories_text();
    let mut sentences = Vec::new();
    let mut ooms = summary.ooms.iter();
    // A line without a title continues the subject of the previous line.
    let mut about = String::new();
    for (title, text) in summary.lines() {
        if !title.is_empty() {
            about.clone_from(&title);
        }
        if let Some(made_of) = made_of_categories.as_ref().filter(|made_of| text.ends_with(&***made_of)) {
            let show = at("categories", Some(peak));
            sentences.push(Sentence { title: BY_CATEGORY_TITLE.to_owned(), text: made_of.clone(), show });
            continue;
        }
        let show = match &*about {
            "Peak" if title.is_empty() => at("segments", Some(reserved.map_or(-1, |event| event as i64))),
            "Peak" => at("timeline", Some(peak)),
            "Out of memory" => at("state", ooms.next().map(|oom| oom.event as i64)),
            "Allocated" | "Active" | "Reserved" | "Inactive" | "Fragmentation" | "Free"
                if summary.kind.has_segments() =>
            {
                at("state", Some(last))
            }
            "Allocated" => at("timeline", Some(last)),
            "Private pools" => at("pools", Some(last)),
            LOOK_FIRST_TITLE => continue,
            _ => None,
        };
        let is_peak = title == "Peak";
        // The line about the reserved peak needs a title of its own, because the sentences about the largest groups are
        // inserted between it and the line about the peak.
        let title = if about == "Peak" && title.is_empty() { RESERVED_PEAK_TITLE.to_owned() } else { title };
        sentences.push(Sentence { title, text, show });
        if is_peak {
            let groups = summary.peak.live.rows.iter().enumerate();
            sentences.extend(groups.map(|(place, row)| group_sentence(place, row, peak)));
        }
    }
    for (place, (about, text)) in summary.look_first_at().into_iter().enumerate() {
        let show = match about {
            HintSubject::OutOfMemory(event) => at("timeline", Some(event as i64)),
            HintSubject::Peak => at("flame", Some(peak)),
            HintSubject::Fragmented | HintSubject::Cached | HintSubject::Rounding => at("state", Some(last)),
            HintSubject::Retained => at("flame", Some(last)),
            _ => at("timeline", Some(last)),
        };
        let title = if place == 0 { LOOK_FIRST_TITLE } else { "" };
        sentences.push(Sentence { title: title.to_owned(), text, show });
    }
    order_by_importance(sentences)
}

/// Moves the most important lines to the front, because the summary itself starts with the memory that is held at the
/// end.
pub(crate) fn order_by_importance(sentences: Vec<Sentence>) -> Vec<Sentence> {
    let rank = |title: &str| match title {
        "Peak" => 0,
        "Made of" | RESERVED_PEAK_TITLE | BY_CATEGORY_TITLE => 1,
        "Out of memory" => 2,
        LOOK_FIRST_TITLE | "Process" => 3,
        "Contradiction" => 4,
        "Allocated" => 5,
        "Trace" => 7,
        _ => 6,
    };
    let mut ranked: Vec<(u8, Sentence)> = Vec::with_capacity(sentences.len());
    for sentence in sentences {
        // A sentence without a title continues the previous one.
        let of = match (&*sentence.title, ranked.last()) {
            ("", Some((before, _))) => *before,
            (title, _) => rank(title),
        };
        ranked.push((of, sentence));
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, sentence)| sentence).collect()
}

/// Returns the sentence about one of the largest groups at the peak.
fn group_sentence(place: usize, row: &TopRow, peak: i64) -> Sentence {
    let error = &row.allocated_error;
    let (bytes, share) = (error.as_bytes(row.allocated_bytes), error.as_share(row.share));
    let blocks = row.count_error.as_counted(row.count, "block");
    let title = if place == 0 { "Made of" } else { "" };
    let (origin, frame) = origin_of(row);
    let query = frame.and_then(|frame| {
        let name = frame.file.as_deref().map(file_name);
        match (name, frame.line) {
            // PyTorch writes 0 for an unknown line, and `??` for an unknown file.
            (Some(file), Some(line)) if line > 0 && file != "??" => {
                Some(format!("{}:{line}", escape_regex(file)))
            }
            _ => Some(escape_regex(&frame.function)).filter(|query| !query.is_empty()),
        }
    });
    Sentence {
        title: title.to_owned(),
        text: format!("{bytes} ({share}) in {blocks}, which {}", to_plural(origin, row.count)),
        show: Some(PageState { view: Some("timeline"), event: Some(peak), query }),
    }
}

/// Changes the verb of a phrase from the singular to the plural unless `blocks`, the number of blocks that the phrase
/// describes, is 1.
fn to_plural(origin: String, blocks: u64) -> String {
    if blocks == 1 {
        return origin;
    }
    for (one, several) in [("is ", "are "), ("has ", "have "), ("was ", "were ")] {
        if let Some(rest) = origin.strip_prefix(one) {
            return format!("{several}{rest}");
        }
    }
    origin
}

/// Returns a regular expression that matches the text.
fn escape_regex(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if "\\^$.|?*+()[]{}/".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}
