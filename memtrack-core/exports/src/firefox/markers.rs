//! The types of markers in a profile.

use fxprof_processed_profile::{
    CategoryHandle, MarkerFieldFlags, MarkerFieldFormat, MarkerLocations, Profile, StaticSchemaMarker,
    StaticSchemaMarkerField, StringHandle,
};

/// All of the profiler's views that show markers.
const ALL_LOCATIONS: MarkerLocations = MarkerLocations::MARKER_CHART
    .union(MarkerLocations::MARKER_TABLE)
    .union(MarkerLocations::TIMELINE_OVERVIEW);

/// A marker with a text. Intervals and moments are two types of markers, which the profiler describes and lists differently.
#[derive(Clone, Debug)]
pub(super) struct Marker<const IS_MOMENT: bool> {
    /// The name of the scope, range or mark, or a text for an out-of-memory event.
    pub(super) name: StringHandle,
    /// The kind of an interval, such as `module` or `operator`, or the details of a moment.
    pub(super) text: StringHandle,
    /// The category, which determines the colour.
    pub(super) category: CategoryHandle,
}

/// An interval, which is a scope or a range of PyTorch's profiler.
pub(super) type IntervalMarker = Marker<false>;
/// A moment at which memory ran out or that the program marked.
pub(super) type MomentMarker = Marker<true>;

impl<const IS_MOMENT: bool> StaticSchemaMarker for Marker<IS_MOMENT> {
    const UNIQUE_MARKER_TYPE_NAME: &'static str =
        if IS_MOMENT { "memtrack-moment" } else { "memtrack-running" };
    const DESCRIPTION: Option<&'static str> = Some(if IS_MOMENT {
        "Memory ran out, or the program marked the moment"
    } else {
        "What was running, from the first to the last event that was made in it"
    });
    const LOCATIONS: MarkerLocations = ALL_LOCATIONS;
    const CHART_LABEL: Option<&'static str> = Some("{marker.name}");
    const TABLE_LABEL: Option<&'static str> = Some(if IS_MOMENT {
        "{marker.name}: {marker.data.detail}"
    } else {
        "{marker.name} ({marker.data.kind})"
    });
    const FIELDS: &'static [StaticSchemaMarkerField] = &[StaticSchemaMarkerField {
        key: if IS_MOMENT { "detail" } else { "kind" },
        label: if IS_MOMENT { "Detail" } else { "Kind" },
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
        self.text
    }

    fn number_field_value(&self, _: u32) -> f64 {
        // Markers have no number fields.
        0.0
    }
}
