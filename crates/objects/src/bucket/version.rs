//! What names the version of an object, in each kind of bucket.

use object_store::{PutMode, UpdateVersion};

use crate::Tag;

/// What names the version of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    ETag,
    /// Google Cloud Storage takes a generation as the condition of a write, and its ETag is made from the content.
    Generation,
}

impl Version {
    /// Returns the tag of a version, or `None` if the store did not name it. Azure lists ETags without the quotation marks that
    /// they have everywhere else.
    pub(super) fn tag(self, e_tag: Option<String>, generation: Option<String>) -> Option<Tag> {
        let unquoted = |tag: String| match tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')) {
            Some(inner) => inner.to_owned(),
            None => tag,
        };
        match self {
            Self::ETag => e_tag.map(unquoted),
            Self::Generation => generation,
        }
        .map(Tag)
    }

    /// Returns the condition of a write.
    pub(super) fn condition(self, expected: Option<&Tag>) -> PutMode {
        let Some(Tag(tag)) = expected else { return PutMode::Create };
        PutMode::Update(match self {
            Self::ETag => UpdateVersion { e_tag: Some(format!("\"{tag}\"")), version: None },
            Self::Generation => UpdateVersion { e_tag: None, version: Some(tag.clone()) },
        })
    }
}

#[cfg(test)]
mod tests {
    use object_store::PutMode;

    use super::Version;
    use crate::Tag;

    #[test]
    fn an_etag_is_the_same_with_and_without_quotation_marks() {
        let tag = |text: &str| Version::ETag.tag(Some(text.to_owned()), None);
        assert_eq!(tag("\"0x8D\""), tag("0x8D"));
        let PutMode::Update(version) = Version::ETag.condition(tag("0x8D").as_ref()) else { panic!("not an update") };
        assert_eq!((version.e_tag.as_deref(), version.version), (Some("\"0x8D\""), None));
    }

    #[test]
    fn google_names_versions_by_generation() {
        let tag = Version::Generation.tag(Some("\"md5\"".into()), Some("17".into()));
        assert_eq!(tag, Some(Tag("17".into())));
        let PutMode::Update(version) = Version::Generation.condition(tag.as_ref()) else { panic!("not an update") };
        assert_eq!((version.e_tag, version.version.as_deref()), (None, Some("17")));
        assert_eq!(Version::Generation.tag(Some("\"md5\"".into()), None), None, "an ETag can't be the condition");
    }
}
