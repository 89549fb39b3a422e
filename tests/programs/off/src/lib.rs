//! Each function in four variants from one source: bare, annotated with `#[track_memory]` as a module and as an operator,
//! and with a guard. Built without the recorder, the four must be the same machine code; `tests/scope/off.rs` compares them.

#![forbid(unsafe_code)]

pub mod api;
#[cfg(feature = "plot")]
pub mod api_of_reports;

use memtrack_core::scope::Guard;

const _: () = assert!(size_of::<Guard>() == 0 && !std::mem::needs_drop::<Guard>());

/// The functions, each with the attributes in brackets and the statements in braces.
macro_rules! functions {
    ([$($attribute:tt)*] { $($guard:tt)* }) => {
        use std::pin::pin;
        use std::task::{Context, Poll, Waker};

        $($attribute)*
        #[inline(never)]
        pub fn sum(values: &[u64]) -> u64 {
            $($guard)*
            values.iter().fold(7, |sum, value| sum.rotate_left(3) ^ value)
        }

        $($attribute)*
        #[inline(never)]
        pub fn parse(text: &str, default: u32) -> Result<u32, std::num::ParseIntError> {
            $($guard)*
            if text.is_empty() {
                return Ok(default);
            }
            let number: u32 = text.parse()?;
            Ok(number.wrapping_add(default))
        }

        $($attribute)*
        #[inline(never)]
        pub fn collect(count: usize) -> Vec<usize> {
            $($guard)*
            (0..count).map(|number| number * number).collect()
        }

        $($attribute)*
        pub async fn fetch(words: [u64; 8], text: &str) -> Option<impl Iterator<Item = u64>> {
            $($guard)*
            let first = std::future::ready(words[3]).await;
            let length = u64::try_from(text.len()).ok()?;
            Some(words.into_iter().map(move |word| word ^ first ^ length))
        }

        #[inline(never)]
        pub fn drive(words: [u64; 8], text: &str) -> Option<u64> {
            let mut future = pin!(fetch(words, text));
            match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(words) => words.map(|words| words.fold(0, u64::wrapping_add)),
                Poll::Pending => Some(size_of_val(&*future) as u64),
            }
        }

        pub struct Layer(pub Vec<f32>);

        impl Layer {
            $($attribute)*
            #[inline(never)]
            pub fn forward(&self, input: &[f32], output: &mut Vec<f32>) -> f32 {
                $($guard)*
                output.extend(self.0.iter().zip(input).map(|(weight, input)| weight * input));
                // Indexing would panic with the line of the macro's call, which differs between the variants.
                output.first().copied().unwrap_or_default()
            }
        }
    };
}

pub mod bare {
    functions!([] {});
}

pub mod tracked {
    functions!([#[memtrack_core::track_memory(module)]] {});
}

/// Annotated as operators, whose arguments and results the recorder would read.
pub mod reading {
    functions!([#[memtrack_core::track_memory]] {});
}

pub mod guarded {
    functions!([] { let _scope = memtrack_core::scope::operator("guarded"); });
}

/// A type with a derive, as in a library that only annotates: the trait also exists without the recorder.
#[derive(memtrack_core::References)]
pub struct Node<T> {
    pub value: T,
    #[references(show)]
    pub id: u64,
    pub inputs: Vec<std::rc::Rc<Node<T>>>,
    #[references(opaque)]
    pub backward: Option<Box<dyn Fn(&T)>>,
}

const _: fn(&Node<u8>) -> &dyn memtrack_core::References = |node| node;
