fn main() {
    let mut args = std::env::args().skip(1);
    let (file, out) = (args.next().unwrap(), args.next().unwrap());
    let t = std::time::Instant::now();
    let whole = memtrack_cycles::read(&std::fs::read(&file).unwrap()).unwrap();
    let part = whole.of_device_memory();
    let findings = memtrack_cycles::Findings::of_part(&part, &whole);
    eprintln!("read and find {:?}", t.elapsed());
    let t = std::time::Instant::now();
    std::fs::write(&out, memtrack_cycles::page::html(&part, &findings, &file)).unwrap();
    eprintln!("page {:?}", t.elapsed());
    std::fs::write(out.replace(".html", ".svg"), memtrack_cycles::picture::svg::svg(&part, &findings))
        .unwrap();
}
