//! The types of markers in a profile.

use fxprof_processed_profile::{
    CategoryHandle, MarkerFieldFlags, MarkerFieldFormat, MarkerLocations, Profile, StaticSchemaMarker,
    StaticSchemaMarkerField, StringHandle,
};

/// All of the profiler's views that show markers.
const ALL_LOCATIONS: MarkerLocations = MarkerLocations::MARKER_CHART
    .union(MarkerLocations::MARKER_TABLE)
    .union(MarkerLocations::TIMELINE_OVERVIEW);

/// An interval, which is a scope or a range of PyTorch's profiler.
#[derive(Clone, Debug)]
pub(super) struct IntervalMarker {
    /// The name of the scope or range.
    pub(super) name: StringHandle,
    /// The kind of scope or range, such as `module` or `operator`.
    pub(super) kind: StringHandle,
    /// The category, which determines the colour.
    pub(super) category: CategoryHandle,
}

impl StaticSchemaMarker for IntervalMarker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "memtrack-running";
    const DESCRIPTION: Option<&'static str> =
        Some("What was running, from the first to the last event that was made in it");
    const LOCATIONS: MarkerLocations = ALL_LOCATIONS;
    const CHART_LABEL: Option<&'static str> = Some("{marker.name}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.name} ({marker.data.kind})");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[StaticSchemaMarkerField {
        key: "kind",
        label: "Kind",
        format: MarkerFieldFormat::String,
        flags: MarkerFieldFlags::SEARCHABLE,
    }];

    fn name(&self, _: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _: &mut Profile) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, _: u32) -> StringHandle {
        self.kind
    }

    fn number_field_value(&self, _: u32) -> f64 {
        // This marker has no number fields.
        0.0
    }
}

/// A moment at which memory ran out or that the program marked.
#[derive(Clone, Debug)]
pub(super) struct MomentMarker {
    /// The name of the mark, or a text for an out-of-memory event.
    pub(super) name: StringHandle,
    /// Further details as text.
    pub(super) detail: StringHandle,
    /// The category, which determines the colour.
    pub(super) category: CategoryHandle,
}

impl StaticSchemaMarker for MomentMarker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "memtrack-moment";
    const DESCRIPTION: Option<&'static str> = Some("Memory ran out, or the program marked the moment");
    const LOCATIONS: MarkerLocations = ALL_LOCATIONS;
    const CHART_LABEL: Option<&'static str> = Some("{marker.name}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.name}: {marker.data.detail}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[StaticSchemaMarkerField {
        key: "detail",
        label: "Detail",
        format: MarkerFieldFormat::String,
        flags: MarkerFieldFlags::SEARCHABLE,
    }];

    fn name(&self, _: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _: &mut Profile) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, _: u32) -> StringHandle {
        self.detail
    }

    fn number_field_value(&self, _: u32) -> f64 {
        // This marker has no number fields.
        0.0
    }
}
