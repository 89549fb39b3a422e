use std::collections::BTreeMap;
use std::process::Command;
use std::thread;

fn fill(number: usize) -> usize {
    let mut words: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for i in 0..2000 {
        words.entry(format!("word {}", i % 97)).or_default().push(i * number);
    }
    words.values().map(|v| v.iter().sum::<usize>()).sum()
}

fn main() {
    let sum: usize = (0..16).map(|n| thread::spawn(move || fill(n))).map(|t| t.join().unwrap()).sum();
    println!("sum {sum}");
    let output = Command::new("sh").args(["-c", "echo output; exit 3"]).output().unwrap();
    println!("{:?} {:?}", String::from_utf8_lossy(&output.stdout), output.status.code());
    println!("{}", thread::spawn(|| panic!("intended")).join().is_err());
    std::process::exit(12);
}

#[cfg(test)]
mod tests {
    #[test]
    fn one() {
        assert_eq!(super::fill(1), 1999000);
    }
    #[test]
    fn two() {
        assert_eq!(super::fill(2), 3998000);
    }
}
