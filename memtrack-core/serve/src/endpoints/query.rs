//! The parameters of a request: those of Go's profiles.

/// The longest interval of a difference, in seconds.
const MAX_SECONDS: u64 = 300;

/// The parameters that are understood. All others are ignored, as Go's handlers do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Query<'a> {
    /// The interval of a difference in seconds.
    pub(super) seconds: Option<u64>,
    /// The value of `debug`, unless it is 0 or absent.
    pub(super) debug: Option<&'a str>,
}

impl<'a> Query<'a> {
    /// Reads the text after the question mark.
    ///
    /// # Errors
    /// Fails if a value is not allowed; the error states what is.
    pub(super) fn parse(text: &'a str) -> Result<Self, String> {
        let mut query = Self::default();
        for parameter in text.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match name {
                "seconds" => {
                    let seconds = value.parse().ok().filter(|seconds| (1..=MAX_SECONDS).contains(seconds));
                    let seconds = seconds.ok_or_else(|| {
                        format!("seconds={value:.20}: it must be a whole number from 1 to {MAX_SECONDS}")
                    })?;
                    query.seconds = Some(seconds);
                }
                "debug" => query.debug = Some(value).filter(|value| *value != "0"),
                _ => {}
            }
        }
        Ok(query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_bounded() {
        assert_eq!(
            Query::parse("gc=1&seconds=300&debug=0").unwrap(),
            Query { seconds: Some(300), debug: None }
        );
        assert_eq!(Query::parse("debug=1").unwrap().debug, Some("1"));
        for value in ["", "0", "-1", "301", "1.5", "99999999999999999999999", "1s"] {
            let error = Query::parse(&format!("seconds={value}")).unwrap_err();
            assert!(error.ends_with("it must be a whole number from 1 to 300"), "{error}");
        }
        assert_eq!(Query::parse("&&x").unwrap(), Query::default());
    }
}
