//! The ledger of resident memory as text.

use super::{Ledger, LedgerRow, Pin, Resident, ResidentReport, SparsePages};
use crate::layout::{Layout, MIN_NAME_CHARS, new_table, shorten_function, wrap};
use comfy_table::{Cell, CellAlignment, Table};
use memtrack_model::snapshot::Charged;
use memtrack_model::units::{counted, human_bytes, human_count, human_share, printable};
use std::collections::BTreeSet;
use std::fmt::{self, Write};

/// Free memory in the allocator below this share of the resident memory needs no advice.
const MIN_ADVICE_SHARE: f64 = 0.02;

impl Resident {
    /// Returns the name of the memory in texts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LiveHeap => "live heap blocks",
            Self::KeptByAllocator => "free pages kept by the allocator",
            Self::Fragmentation => "free, on pages with live blocks",
            Self::FreeInAllocator => "free in the allocator, or beside live blocks",
            Self::Heap => "heap: live blocks and free memory",
            Self::Mapped => "mapped memory",
            Self::Stacks => "stacks",
            Self::Files => "mapped files",
            Self::Shared => "shared memory",
            Self::Binaries => "code and data of binaries",
            Self::Memtrack => "memtrack's own",
            Self::NotExplained => "not explained",
        }
    }

    /// Returns the word for the memory in a narrow column.
    const fn short_name(self) -> &'static str {
        match self {
            Self::LiveHeap => "Live",
            Self::KeptByAllocator => "Kept",
            Self::Fragmentation => "Beside live",
            Self::FreeInAllocator => "Free",
            Self::Heap => "Heap",
            Self::Mapped => "Mapped",
            Self::Stacks => "Stacks",
            Self::Files => "Files",
            Self::Shared => "Shared",
            Self::Binaries => "Binaries",
            Self::Memtrack => "memtrack",
            Self::NotExplained => "Not explained",
        }
    }
}

impl fmt::Display for ResidentReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_text(None))
    }
}

impl ResidentReport {
    /// Formats the report. If the layout has a width, names are shortened until they fit.
    pub fn to_text(&self, layout: impl Into<Layout>) -> String {
        let width = layout.into().width;
        let mut text = wrap(&self.head(), width);
        let _ = write!(text, "\n{}\n", self.table());
        for note in self.notes() {
            text += &wrap(&(note + "\n"), width);
        }
        // The end shows what is still pinned; at the peak, most was in use.
        for ledger in self.moments().iter().rev().take(1) {
            if let Some(pages) = ledger.sparse_pages.as_ref().filter(|pages| pages.bytes > 0) {
                text += &format!("\n{}\n{}", wrap(&(pages.head() + "\n"), width), pages.table(width));
            }
            text += &ledger
                .advice()
                .map_or(String::new(), |advice| format!("\n{}", wrap(&(advice + "\n"), width)));
        }
        if !self.over_time.is_empty() {
            let _ = write!(
                text,
                "\nOver time: {} of {}\n\n{}",
                self.over_time.len(),
                counted(self.readings, "reading"),
                self.time_table()
            );
        }
        text
    }

    /// Returns the ledgers to show: one if the last reading is the highest one.
    fn moments(&self) -> Vec<&Ledger> {
        if self.peak == self.end { vec![&self.end] } else { vec![&self.peak, &self.end] }
    }

    fn head(&self) -> String {
        let (peak, end) = (&self.peak, &self.end);
        let ends = if self.complete { "" } else { "; the recording was not ended" };
        let last = format!(
            "{} at the last, {} before the end",
            human_bytes(end.resident_bytes),
            seconds(end.seconds_before_end)
        );
        let readings = counted(self.readings, "reading");
        if self.peak == self.end {
            return format!(
                "Resident memory: {} at the last and highest of {readings}, {} before the end{ends}\n",
                human_bytes(end.resident_bytes),
                seconds(end.seconds_before_end)
            );
        }
        format!(
            "Resident memory: {} at the highest of {readings}, {} after the start; {last}{ends}\n",
            human_bytes(peak.resident_bytes),
            seconds(peak.seconds)
        )
    }

    fn table(&self) -> String {
        let moments = self.moments();
        let mut table = new_table();
        let heads = match moments.len() {
            1 => vec!["At the end"],
            _ => vec!["At the highest", "At the end"],
        };
        let heads = heads.into_iter().flat_map(|head| [right(head), right("Share")]);
        table.set_header([Cell::new("Memory")].into_iter().chain(heads));
        for what in kinds(moments.iter().flat_map(|ledger| &ledger.rows)) {
            let cells = moments.iter().flat_map(|ledger| match find(&ledger.rows, what) {
                Some(row) => [right(row.bytes_text()), right(row.bytes_error.as_share(row.share))],
                None => [right("—"), right("—")],
            });
            table.add_row([Cell::new(what.name())].into_iter().chain(cells));
        }
        let all =
            moments.iter().flat_map(|ledger| [right(human_bytes(ledger.resident_bytes)), right("100 %")]);
        table.add_row([Cell::new("resident, as the kernel counts")].into_iter().chain(all));
        table.trim_fmt() + "\n"
    }

    fn notes(&self) -> Vec<String> {
        let end = &self.end;
        let mut notes = Vec::new();
        if end.live_not_resident_bytes > 0 {
            let bytes = human_bytes(end.live_not_resident_bytes);
            notes.push(format!("Not resident: {bytes} of live heap blocks, which the program has not touched, or which were swapped out"));
        }
        if end.swapped_bytes > 0 {
            notes.push(format!("Swapped out: {}", human_bytes(end.swapped_bytes)));
        }
        if let Some(charged) = &end.charged {
            notes.push(charged.line());
        }
        let changed = self.moments().iter().map(|ledger| ledger.changed_bytes).max().unwrap_or(0);
        if changed > 0 {
            notes.push(format!(
                "The program allocated and freed {} while pages were read: rows may be off by as much",
                human_bytes(changed)
            ));
        }
        if end.rows.iter().any(|row| row.what == Resident::Heap) {
            notes.push("It is not known which blocks were live: events were lost because the machine was too busy, or pages could not be read".to_owned());
        } else if end.trim_at_most_bytes.is_none() {
            notes.push(
                "Small blocks were sampled: free pages and free memory beside live blocks are not distinguished. `memtrack run --host \
                 --exact`, or in a program Options::exact(), records every block"
                    .to_owned(),
            );
        }
        notes
    }

    fn time_table(&self) -> String {
        let mut table = new_table();
        let kinds = kinds(self.over_time.iter().flat_map(|point| &point.rows));
        let heads = kinds.iter().map(|what| right(what.short_name()));
        table.set_header([right("Time"), right("Resident")].into_iter().chain(heads));
        for point in &self.over_time {
            let cell =
                |what: &Resident| find(&point.rows, *what).map_or("—".to_owned(), LedgerRow::bytes_text);
            let cells = kinds.iter().map(|what| right(cell(what)));
            let moment = [right(seconds(point.seconds)), right(human_bytes(point.resident_bytes))];
            table.add_row(moment.into_iter().chain(cells));
        }
        table.trim_fmt() + "\n"
    }
}

/// Returns the kinds of memory that any of these rows has, and "not explained", in their order.
fn kinds<'a>(rows: impl Iterator<Item = &'a LedgerRow>) -> Vec<Resident> {
    let is_shown =
        |row: &&LedgerRow| row.bytes > 0 || !row.bytes_error.is_exact() || row.what == Resident::NotExplained;
    let kinds: BTreeSet<Resident> = rows.filter(is_shown).map(|row| row.what).collect();
    kinds.into_iter().collect()
}

fn find(rows: &[LedgerRow], what: Resident) -> Option<&LedgerRow> {
    rows.iter().find(|row| row.what == what)
}

impl LedgerRow {
    fn bytes_text(&self) -> String {
        self.bytes_error.as_bytes(self.bytes)
    }
}

impl Ledger {
    /// Returns what would lower the resident memory, and by how much at most; `None` if there is too little to gain.
    fn advice(&self) -> Option<String> {
        let kept = self.trim_at_most_bytes?;
        if (kept as f64) < MIN_ADVICE_SHARE * self.resident_bytes as f64 {
            return None;
        }
        Some(format!(
            "What would help: returning free pages to the system (malloc_trim, jemalloc's purge, mi_collect) would free at most {}",
            human_bytes(kept)
        ))
    }
}

impl SparsePages {
    fn head(&self) -> String {
        format!(
            "Pages of which at most a quarter is live: {} resident for {} of live blocks",
            human_bytes(self.bytes),
            human_bytes(self.live_bytes)
        )
    }

    fn table(&self, width: Option<usize>) -> String {
        let full = self.format(usize::MAX);
        let widest = full.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        let too_wide = width.map_or(0, |width| widest.saturating_sub(width));
        let longest = self.pinned_by.iter().map(|pin| pin.name.chars().count()).max().unwrap_or(0);
        let mut text = if too_wide == 0 {
            full
        } else {
            self.format(longest.saturating_sub(too_wide).max(MIN_NAME_CHARS))
        };
        let more = self.pinned_by_in_all - self.pinned_by.len();
        if more > 0 {
            text += &format!("… and {}\n", counted(more as u64, "more line"));
        }
        text
    }

    fn format(&self, room: usize) -> String {
        let mut table: Table = new_table();
        let heads = ["Pins", "Share", "Alone", "Live", "Blocks", "Mostly of"].map(right);
        table.set_header([Cell::new("Pinned by")].into_iter().chain(heads));
        for pin in &self.pinned_by {
            let Pin { bytes, alone_bytes, live_bytes, blocks, usual_block_bytes, share, .. } = pin;
            table.add_row([
                Cell::new(printable(&shorten_function(&pin.name, room))),
                right(human_bytes(*bytes)),
                right(human_share(*share)),
                right(human_bytes(*alone_bytes)),
                right(human_bytes(*live_bytes)),
                right(human_count(*blocks)),
                right(human_bytes(*usual_block_bytes)),
            ]);
        }
        table.trim_fmt() + "\n"
    }
}

/// Formats what a container is charged for.
trait ChargedText {
    fn line(&self) -> String;
}

impl ChargedText for Charged {
    fn line(&self) -> String {
        let limit =
            self.limit_bytes.map_or(String::new(), |limit| format!(" of at most {}", human_bytes(limit)));
        let kernel =
            self.kernel_bytes.map_or(String::new(), |bytes| format!(", the kernel's {}", human_bytes(bytes)));
        format!(
            "Charged to the container, with all its processes: {}{limit}: memory {}, files {}, shared {}{kernel}",
            human_bytes(self.bytes),
            human_bytes(self.anonymous_bytes),
            human_bytes(self.file_bytes),
            human_bytes(self.shared_bytes)
        )
    }
}

fn right(text: impl ToString) -> Cell {
    Cell::new(text.to_string()).set_alignment(CellAlignment::Right)
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.3} s")
}
