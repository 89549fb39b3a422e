mod first {
    use memtrack_examples_autodiff::device::Buffer;
    use std::rc::Rc;

    struct Model;

    fn program(memory: Buffer) {
        let inputs = Vec::new();
        block!("use memtrack_core::{References, cycles, track_memory};");
    }
}

mod by_hand {
    use memtrack_core::event::DeviceId;
    use memtrack_core::references::{DeviceMemory, References, Visitor};

    struct Buffer {
        address: u64,
    }
    impl Buffer {
        fn size_bytes(&self) -> u64 {
            unimplemented!()
        }
    }

    block!("impl References for Buffer {");
}

mod backward {
    use memtrack_core::references::{Capturing, References};
    use memtrack_examples_autodiff::device::Buffer;
    use std::cell::OnceCell;
    use std::rc::Rc;

    type Tensor = Rc<Node>;
    #[derive(References)]
    struct Node {
        backward: OnceCell<Box<dyn Backward>>,
    }

    impl<H: References, F: Fn(&H, &Buffer) -> Vec<(Tensor, Buffer)>> Backward for Capturing<H, F> {
        fn backward(&self, gradient: &Buffer) -> Vec<(Tensor, Buffer)> {
            self.call(gradient)
        }
    }

    block!("pub trait Backward: References {");

    fn set(node: Tensor, a: Tensor, b: Tensor) {
        block!("let backward = Capturing::by_ref((Rc::clone(&a), Rc::clone(&b)), |(a, b), gradient: &Buffer| …);");
    }
}

mod in_a_test {
    use memtrack_core::cycles;

    fn train_one_step() {}

    block!("#[test]");
}

mod handles {
    use memtrack_core::cycles::{self, Tracked};
    use memtrack_core::{References, track_memory};
    use memtrack_examples_autodiff::device::{Buffer, Device};
    use std::mem;
    use std::rc::Rc;

    block!("#[derive(References)]");
}

mod derive {
    use crate::program::Tensor;

    #[derive(memtrack_core::References)]
    struct Graph;

    block!("use memtrack_core::References;\nuse std::rc::{Rc, Weak};");
}
