//! Base64 (RFC 4648), for certificates and Secrets, and for URLs and tokens.

use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, PAD};

// Go's decoder ignores the bits that follow the last byte.
const STANDARD: GeneralPurpose =
    GeneralPurpose::new(&alphabet::STANDARD, PAD.with_decode_allow_trailing_bits(true));
const URL: GeneralPurpose =
    GeneralPurpose::new(&alphabet::URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

/// With padding (section 4).
pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// With the URL-safe alphabet, without padding (section 5).
pub fn base64_url(bytes: &[u8]) -> String {
    URL.encode(bytes)
}

/// The inverse of [`base64`]; `None` if the text is invalid.
pub fn unbase64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// The inverse of [`base64_url`]; `None` if the text is invalid.
pub fn unbase64_url(text: &str) -> Option<Vec<u8>> {
    URL.decode(text).ok()
}
