mod first {
    block!("// Once in the test program: tests/NAME.rs, or src/lib.rs under #[cfg(test)].");
}

mod functions {
    struct Model;
    impl Model {
        fn bytes(&self) -> u64 {
            unimplemented!()
        }
    }
    struct Server;
    impl Server {
        async fn ask(&self, _: &str) -> String {
            unimplemented!()
        }
    }
    fn load(_: &str) -> Model {
        unimplemented!()
    }

    async fn limited(path: &'static str, server: Server) {
        block!("use memtrack_core::testing::{self, Limits};");
    }

    async fn task() {}

    fn threads() {
        block!("let scope = memtrack_core::scope::current();");
    }
}

mod devices {
    use memtrack_core::testing::limits;

    block!("#[limits(devices(peak = \"2 GiB\", leaks = 0), host(peak = \"10 MiB\"))]");
    fn limited() {}

    block!("#[limits(leaks = 0, run_once)]");
    fn once() {}
}

mod leaks {
    fn steps<T>(batches: Vec<T>, train: impl Fn(T)) {
        block!("for batch in batches {");
    }

    fn leaks(recording: memtrack_core::Recording) -> crate::program::Result<()> {
        block!("use memtrack_core::analysis::leaks::LeakOptions;");
        Ok(())
    }
}
