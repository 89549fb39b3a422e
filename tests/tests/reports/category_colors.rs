//! The page cannot depend on the crate that defines the categories, so the page and the crate each have a list of categories;
//! this test compares the two lists.

use memtrack_core::profile::Category;
use std::fs;
use std::path::Path;

/// Returns the name and colour of each line in the page's list.
fn page_categories() -> Vec<(String, String)> {
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../memtrack-core/page/viewer/src/categories/names.ts");
    let source = fs::read_to_string(source).unwrap();
    let (_, list) = source.split_once("const KNOWN").expect("the page has a list of categories");
    let (_, list) = list.split_once("= [\n").unwrap();
    let (list, _) = list.split_once("\n];").unwrap();
    list.lines()
        .map(|line| {
            let mut texts = line.split('\'').skip(1).step_by(2).map(str::to_owned);
            (texts.next().expect(line), texts.next().expect(line))
        })
        .collect()
}

#[test]
fn the_page_has_the_categories_in_the_same_order_and_colours() {
    let known: Vec<_> = Category::ALL
        .iter()
        .map(|category| {
            let [red, green, blue] = category.colour();
            (category.name().to_ascii_lowercase(), format!("#{red:02x}{green:02x}{blue:02x}"))
        })
        .collect();
    assert_eq!(page_categories(), known);
}
