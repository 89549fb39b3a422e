//! The colours of a heat map, as image palettes. The colours for bytes go from dark to light, with steadily rising
//! brightness. Differences from the median are orange above it and blue below it, which red-green colour-blind readers
//! can distinguish too. Values equal to the median are transparent, so that they fit both a light and a dark page.

/// Red, green, blue, and opacity.
pub(super) type Colour = [u8; 4];

/// The index in a palette for a cell without memory.
pub(super) const EMPTY: u8 = 0;
/// The index in the palette for differences of a cell that is equal to the median.
const EQUAL: u8 = 1;
/// The number of shades for each of the four kinds of difference: above or below the median, of an outlier or not.
const SHADES: u8 = 63;
/// The factor on the opacity of ranks that are not outliers, which makes them paler than outliers.
const USUAL_OPACITY: f64 = 0.35;
/// The exponent that makes the opacity grow with the difference so that small differences are visible too.
const OPACITY_EXPONENT: f64 = 0.6;

/// The colour scale for bytes, from 0 to the maximum.
const BYTES_SCALE: [[u8; 3]; 7] = [
    [22, 20, 52],
    [58, 34, 112],
    [110, 44, 132],
    [168, 58, 122],
    [222, 92, 88],
    [247, 160, 80],
    [252, 240, 180],
];
/// The colours above and below the median.
const ABOVE_MEDIAN: [u8; 3] = [230, 88, 12];
const BELOW_MEDIAN: [u8; 3] = [28, 116, 214];
/// The colour of a cell without memory, for light and dark pages.
pub(super) const GREY: Colour = [128, 128, 128, 90];

/// Returns the index of `bytes` in [`bytes_palette`]. `most` is the maximum over all cells.
pub(super) fn bytes_index(bytes: u64, most: u64) -> u8 {
    1 + (254.0 * share(bytes, most)).round() as u8
}

/// Returns the index of `bytes` in [`difference_palette`]. `furthest` is the largest difference between any cell and
/// its median. `is_odd` selects the stronger shades of outliers.
pub(super) fn difference_index(bytes: u64, median: u64, furthest: u64, is_odd: bool) -> u8 {
    if bytes == median {
        return EQUAL;
    }
    let shade = (f64::from(SHADES) * share(bytes.abs_diff(median), furthest)).ceil() as u8;
    let kind = u8::from(bytes < median) + 2 * u8::from(!is_odd);
    EQUAL + kind * SHADES + shade.clamp(1, SHADES)
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64).min(1.0) }
}

/// Returns the palette for bytes.
pub(super) fn bytes_palette() -> Vec<Colour> {
    let between = |at: f64| {
        let at = at * (BYTES_SCALE.len() - 1) as f64;
        let low = (at as usize).min(BYTES_SCALE.len() - 2);
        let mix = |channel: usize| {
            let (from, to) = (f64::from(BYTES_SCALE[low][channel]), f64::from(BYTES_SCALE[low + 1][channel]));
            (from + (to - from) * (at - low as f64)).round() as u8
        };
        [mix(0), mix(1), mix(2), 255]
    };
    std::iter::once(GREY).chain((0..255).map(|at| between(f64::from(at) / 254.0))).collect()
}

/// Returns the palette for differences.
pub(super) fn difference_palette() -> Vec<Colour> {
    let mut palette = vec![GREY, [ABOVE_MEDIAN[0], ABOVE_MEDIAN[1], ABOVE_MEDIAN[2], 0]];
    for (colour, strong) in [
        (ABOVE_MEDIAN, 1.0),
        (BELOW_MEDIAN, 1.0),
        (ABOVE_MEDIAN, USUAL_OPACITY),
        (BELOW_MEDIAN, USUAL_OPACITY),
    ] {
        for shade in 1..=SHADES {
            let opaque = (f64::from(shade) / f64::from(SHADES)).powf(OPACITY_EXPONENT) * strong;
            palette.push([colour[0], colour[1], colour[2], (255.0 * opaque).round() as u8]);
        }
    }
    palette
}

/// Returns evenly spaced colours from a scale, for its legend. For bytes, they go from 0 to the maximum, and for
/// differences, from the furthest below the median to the furthest above it.
pub(super) fn scale_colours(palette: &[Colour], is_difference: bool) -> Vec<Colour> {
    const STOPS: u8 = 8;
    if !is_difference {
        return (0..=STOPS).map(|stop| palette[1 + 254 * usize::from(stop) / usize::from(STOPS)]).collect();
    }
    let shade = |kind: u8, stop: u8| {
        let shade = u16::from(stop) * u16::from(SHADES) / u16::from(STOPS);
        palette[usize::from(EQUAL + kind * SHADES) + usize::from(shade)]
    };
    let below = (1..=STOPS).rev().map(|stop| shade(1, stop));
    let above = (1..=STOPS).map(|stop| shade(0, stop));
    below.chain([palette[usize::from(EQUAL)]]).chain(above).collect()
}

/// Formats a colour for CSS.
pub(super) fn format_css([red, green, blue, opaque]: Colour) -> String {
    format!("rgba({red},{green},{blue},{:.2})", f64::from(opaque) / 255.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_is_in_its_palette_and_differs_from_that_of_empty_cells() {
        for (bytes, most) in [(0, 0), (0, 9), (1, 9), (9, 9), (u64::MAX, u64::MAX)] {
            assert!(bytes_index(bytes, most) > EMPTY);
        }
        assert_eq!((bytes_palette().len(), bytes_index(9, 9)), (256, 255));
        let palette = difference_palette();
        for (bytes, median) in [(0, u64::MAX), (u64::MAX, 0), (5, 4), (4, 5), (4, 4)] {
            for is_odd in [true, false] {
                let place = difference_index(bytes, median, u64::MAX, is_odd);
                assert!(place > EMPTY && usize::from(place) < palette.len());
            }
        }
        assert!(palette.len() <= 256);
    }

    #[test]
    fn outlier_differences_are_stronger_and_signs_differ() {
        let palette = difference_palette();
        let colour = |bytes, is_odd| palette[usize::from(difference_index(bytes, 100, 100, is_odd))];
        assert!(colour(150, true)[3] > colour(150, false)[3]);
        assert!(colour(200, true)[3] > colour(150, true)[3]);
        assert_eq!(colour(150, true)[..3], ABOVE_MEDIAN);
        assert_eq!(colour(50, true)[..3], BELOW_MEDIAN);
        assert_eq!(colour(100, true)[3], 0);
    }

    #[test]
    fn more_bytes_are_lighter() {
        let light =
            |[red, green, blue, _]: Colour| 3 * u32::from(red) + 6 * u32::from(green) + u32::from(blue);
        let lights: Vec<u32> = scale_colours(&bytes_palette(), false).into_iter().map(light).collect();
        assert!(lights.is_sorted(), "{lights:?}");
    }
}
