//! The types of markers of a profile.

use fxprof_processed_profile::{
    CategoryHandle, MarkerFieldFlags, MarkerFieldFormat, MarkerLocations, Profile, StaticSchemaMarker,
    StaticSchemaMarkerField, StringHandle,
};

/// All views of the profiler that show markers.
const ALL_LOCATIONS: MarkerLocations = MarkerLocations::MARKER_CHART
    .union(MarkerLocations::MARKER_TABLE)
    .union(MarkerLocations::TIMELINE_OVERVIEW);

/// An interval: a scope, or a range of PyTorch's profiler.
#[derive(Clone, Debug)]
pub(super) struct Running {
    /// Its name.
    pub(super) name: StringHandle,
    /// Its kind: a module, an operator.
    pub(super) kind: StringHandle,
    /// Its color.
    pub(super) category: CategoryHandle,
}

impl StaticSchemaMarker for Running {
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
        // There is no such field.
        0.0
    }
}

/// A moment: memory ran out, or the program marked it.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    /// Its name.
    pub(super) name: StringHandle,
    /// Further details.
    pub(super) detail: StringHandle,
    /// Its color.
    pub(super) category: CategoryHandle,
}

impl StaticSchemaMarker for Moment {
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
        // There is no such field.
        0.0
    }
}
