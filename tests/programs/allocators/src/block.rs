//! A block of memory of a known size, with content that is checked when the block is freed or reallocated. It is allocated by
//! safe code: a vector with an exact capacity is one block of as many bytes.

/// Memory at an address that is a multiple of 4096, which no size class of small blocks promises.
#[repr(align(4096))]
pub struct Page([u8; 4096]);

/// A block of an allocator.
pub enum Block {
    /// A block of any size without alignment.
    Bytes(Vec<u8>),
    /// Whole pages.
    Pages(Vec<Page>),
}

impl Block {
    /// Allocates a block. `how` selects the way: zeroed, aligned, or neither. An aligned block has the next larger size that is a
    /// multiple of a page.
    pub fn allocate(how: usize, size: usize) -> Self {
        match how {
            0..3 => {
                let mut bytes = vec![0; size];
                assert!(bytes.iter().all(|&byte| byte == 0), "a zeroed block has other content");
                mark(&mut bytes);
                Self::Bytes(bytes)
            }
            3 => {
                let mut pages = Vec::with_capacity(size.div_ceil(4096));
                pages.push(Page([1; 4096]));
                assert!(pages.as_ptr().addr().is_multiple_of(4096), "a block is not aligned");
                Self::Pages(pages)
            }
            _ => {
                // Not zeroed by the allocator.
                let mut bytes = Vec::with_capacity(size);
                bytes.extend(std::iter::repeat_n(1, size));
                mark(&mut bytes);
                Self::Bytes(bytes)
            }
        }
    }

    /// Returns the size of the block in bytes, as the allocator was asked for.
    pub fn size(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.capacity(),
            Self::Pages(pages) => pages.capacity() * 4096,
        }
    }

    /// Reallocates the block to another size. Returns whether the allocator was called: it is not for the same size.
    pub fn reallocate(&mut self, size: usize) -> bool {
        let before = self.size();
        match self {
            Self::Bytes(bytes) => {
                check(bytes);
                if size > before {
                    bytes.reserve_exact(size - before);
                } else {
                    bytes.truncate(size);
                    bytes.shrink_to_fit();
                }
                assert_eq!(bytes.first(), Some(&(before as u8)), "a reallocated block has other content");
                bytes.resize(size, 0);
                mark(bytes);
            }
            Self::Pages(pages) => {
                pages.reserve_exact(size.div_ceil(4096).max(1) - 1);
                assert!(pages.as_ptr().addr().is_multiple_of(4096), "a reallocated block is not aligned");
                assert!(pages[0].0 == [1; 4096], "a reallocated block has other content");
            }
        }
        self.size() != before
    }

    /// Frees the block, and returns the size that it had.
    pub fn free(self) -> usize {
        match &self {
            Self::Bytes(bytes) => check(bytes),
            Self::Pages(pages) => assert!(pages[0].0 == [1; 4096], "a block has other content"),
        }
        self.size()
    }
}

/// Writes the size to both ends of the block.
fn mark(bytes: &mut [u8]) {
    let size = bytes.len() as u8;
    for end in [bytes.len() - 1, 0] {
        bytes[end] = size;
    }
}

fn check(bytes: &[u8]) {
    let size = bytes.len() as u8;
    assert!(bytes.first() == Some(&size) && bytes.last() == Some(&size), "a block has other content");
}
