//! Header blocks of SPDY/3: names and values, compressed by one zlib stream per direction with a fixed dictionary.
//! <https://www.chromium.org/spdy/spdy-protocol/spdy-protocol-draft3-1/>, 2.6.10.

use flate2::{Compress, Compression, Decompress, DecompressError, FlushCompress, FlushDecompress};

/// Maximum size of a block, uncompressed.
const LIMIT: usize = 64 * 1024;

/// The strings at the beginning of the dictionary, each of which follows its length.
const STRINGS: [&str; 65] = [
    "options",
    "head",
    "post",
    "put",
    "delete",
    "trace",
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "connection",
    "content-base",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-md5",
    "content-range",
    "content-type",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "location",
    "max-forwards",
    "pragma",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "retry-after",
    "server",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "vary",
    "via",
    "warning",
    "www-authenticate",
    "method",
    "get",
    "status",
    "200 OK",
    "version",
    "HTTP/1.1",
    "url",
    "public",
    "set-cookie",
    "keep-alive",
    "origin",
];

/// The rest of the dictionary.
const TEXT: &str = "\
    100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 No\
    n-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized40\
    3 Forbidden404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan F\
    eb Mar Apr May Jun Jul Aug Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunk\
    ed,text/html,image/png,image/jpg,image/gif,application/xml,application/xhtml+xml,text/plain,text\
    /javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

/// Length of the header of a zlib stream with a dictionary, in bytes (RFC 1950).
const STREAM_HEADER: usize = 6;

/// Names and values.
pub type Headers = Vec<(String, String)>;

/// Why a block cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BlockError {
    /// zlib rejects it.
    #[error(transparent)]
    Zlib(#[from] DecompressError),
    /// It is larger than any valid one.
    #[error("a header block has more than 64 KiB")]
    Limit,
    /// A length is wrong.
    #[error("a header block is truncated")]
    Truncated,
}

/// Reads the blocks of a connection, in their order.
pub struct Reader(Decompress);

impl Reader {
    /// At the beginning of the connection.
    pub fn new() -> Self {
        Self(Decompress::new(true))
    }

    /// Reads the next block.
    ///
    /// # Errors
    /// See [`BlockError`]; the blocks after it cannot be read either.
    pub fn read(&mut self, block: &[u8]) -> Result<Headers, BlockError> {
        let mut text = Vec::with_capacity(1024);
        let mut rest = block;
        // All of the block has been read, and what it contains fits.
        while !rest.is_empty() || text.len() == text.capacity() {
            let before = (self.0.total_in(), text.len());
            match self.0.decompress_vec(rest, &mut text, FlushDecompress::Sync) {
                Ok(_) => {}
                Err(error) if error.needs_dictionary().is_some() => {
                    self.0.set_dictionary(&dictionary())?;
                    // Implementations differ in whether they count what they have read until then.
                    rest = rest.get(STREAM_HEADER..).ok_or(BlockError::Truncated)?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            let read = (self.0.total_in() - before.0) as usize;
            rest = &rest[read..];
            if text.len() > LIMIT {
                return Err(BlockError::Limit);
            }
            if text.len() == text.capacity() {
                text.reserve(text.len());
            } else if read == 0 && text.len() == before.1 && !rest.is_empty() {
                return Err(BlockError::Truncated);
            }
        }
        parse(&text).ok_or(BlockError::Truncated)
    }
}

/// Writes the blocks of a connection, in their order.
pub struct Writer(Compress);

impl Writer {
    /// At the beginning of the connection.
    pub fn new() -> Self {
        let mut compress = Compress::new(Compression::fast(), true);
        compress.set_dictionary(&dictionary()).expect("a new stream accepts a dictionary");
        Self(compress)
    }

    /// The next block.
    pub fn write(&mut self, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut text = length(headers.len()).to_vec();
        for (name, value) in headers {
            text.extend(length(name.len()));
            text.extend(name.as_bytes());
            text.extend(length(value.len()));
            text.extend(value.as_bytes());
        }
        // Larger than incompressible text with the marks of the flush.
        let mut block = Vec::with_capacity(text.len() * 2 + 256);
        let status = self.0.compress_vec(&text, &mut block, FlushCompress::Sync);
        status.expect("a stream that is not finished accepts input");
        block
    }
}

fn dictionary() -> Vec<u8> {
    let mut dictionary = Vec::new();
    for string in STRINGS {
        dictionary.extend(length(string.len()));
        dictionary.extend(string.as_bytes());
    }
    dictionary.extend(TEXT.as_bytes());
    dictionary
}

fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).expect("headers are short").to_be_bytes()
}

fn parse(text: &[u8]) -> Option<Headers> {
    let (count, mut rest) = number(text)?;
    let mut headers = Vec::new();
    for _ in 0..count {
        let (name, after) = string(rest)?;
        let (value, after) = string(after)?;
        headers.push((name, value));
        rest = after;
    }
    Some(headers)
}

fn string(text: &[u8]) -> Option<(String, &[u8])> {
    let (length, rest) = number(text)?;
    let (string, rest) = rest.split_at_checked(length)?;
    Some((String::from_utf8_lossy(string).into_owned(), rest))
}

fn number(text: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = text.split_first_chunk()?;
    Some((u32::from_be_bytes(*number) as usize, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(headers: &[(&str, &str)]) -> Headers {
        headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    /// Two blocks of one connection, compressed by zlib 1.3 with the dictionary of the specification.
    #[test]
    fn blocks_of_zlib_are_read() {
        let blocks: [&[u8]; 2] = [
            b"\x78\xbb\xe3\xc6\xa7\xc2\x02\x25\x3a\x70\x3a\x2b\x29\x4a\x4d\xcc\x85\x16\x25\xac\xa9\xa0\
              \x80\x86\x14\xcb\x45\xa0\x24\xcc\x64\x61\x00\x24\x39\x8b\x20\x91\x98\x09\x4a\xdc\x8c\x06\
              \x00\x00\x00\x00\xff\xff",
            b"\xc2\xaa\x15\x54\x0a\x25\x12\xd2\x09\x00\x00\x00\xff\xff",
        ];
        let mut reader = Reader::new();
        for (block, kind) in blocks.into_iter().zip(["error", "data"]) {
            let expected = owned(&[("streamtype", kind), ("port", "80"), ("requestid", "0")]);
            assert_eq!(reader.read(block).unwrap(), expected);
        }
    }

    #[test]
    fn written_blocks_are_read() {
        let long = "x".repeat(5000);
        let (mut writer, mut reader) = (Writer::new(), Reader::new());
        for headers in [&[("status", "200 OK"), ("content-type", &*long)][..], &[], &[("a", "")]] {
            assert_eq!(reader.read(&writer.write(headers)).unwrap(), owned(headers));
        }
    }

    #[test]
    fn invalid_blocks_are_rejected() {
        assert!(matches!(Reader::new().read(b"no zlib"), Err(BlockError::Zlib(_))));
        let mut cut = Writer::new().write(&[("a", "b")]);
        cut.truncate(10);
        assert!(matches!(Reader::new().read(&cut), Err(BlockError::Truncated)), "{cut:?}");
        let mut compress = Compress::new(Compression::fast(), true);
        compress.set_dictionary(&dictionary()).unwrap();
        let mut bomb = Vec::with_capacity(LIMIT);
        compress.compress_vec(&vec![0; LIMIT * 4], &mut bomb, FlushCompress::Sync).unwrap();
        assert!(matches!(Reader::new().read(&bomb), Err(BlockError::Limit)));
    }
}
