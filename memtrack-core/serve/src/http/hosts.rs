//! The check of the `Host` header. A page of another site can make a browser send requests to a server on this machine, but
//! cannot read the responses, unless the site's name resolves to this machine (DNS rebinding). Such requests have the site's
//! name as their host.

use std::net::SocketAddr;

/// The hosts that requests may name.
#[derive(Clone, Debug)]
pub struct Hosts {
    allowed: Vec<String>,
    /// Whether a request may also name the address that it was sent to.
    allows_address: bool,
}

impl Hosts {
    /// Allows only these hosts. A name without a port, such as `localhost`, is allowed with any port and without one.
    pub fn only(allowed: impl IntoIterator<Item = String>) -> Self {
        Self { allowed: allowed.into_iter().collect(), allows_address: false }
    }

    /// Allows the names of the loopback address, and the address that a request was sent to.
    pub fn of_server() -> Self {
        let loopback = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned);
        Self { allowed: loopback.to_vec(), allows_address: true }
    }

    /// Allows one more host, as in [`Self::only`].
    pub fn add(&mut self, name: &str) {
        self.allowed.push(name.to_owned());
    }

    /// Returns whether a request to `local` may name this host.
    pub(super) fn allows(&self, host: &[u8], local: SocketAddr) -> bool {
        let Ok(host) = std::str::from_utf8(host) else { return false };
        let name = without_port(host);
        // A rebound name is not an address, so an address is no danger, but one of another machine is a mistake.
        if self.allows_address
            && name.trim_matches(['[', ']']).parse().is_ok_and(|ip| local.ip() == canonical(ip))
        {
            return true;
        }
        self.allowed
            .iter()
            .any(|allowed| allowed.eq_ignore_ascii_case(host) || allowed.eq_ignore_ascii_case(name))
    }
}

fn canonical(ip: std::net::IpAddr) -> std::net::IpAddr {
    ip.to_canonical()
}

/// Removes the port. The colons of an IPv6 address are inside brackets.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty() => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_allows_loopback_names_its_address_and_added_names() {
        let mut hosts = Hosts::of_server();
        hosts.add("metrics.example");
        hosts.add("proxy.example:8443");
        let local: SocketAddr = "10.1.2.3:6060".parse().unwrap();
        for host in [
            "localhost",
            "LocalHost:6060",
            "localhost:8080",
            "127.0.0.1:6060",
            "[::1]:6060",
            "10.1.2.3:6060",
            "metrics.example",
            "metrics.example:80",
            "proxy.example:8443",
        ] {
            assert!(hosts.allows(host.as_bytes(), local), "{host}");
        }
        for host in [
            "",
            ":",
            "evil.example",
            "evil.example:6060",
            "localhost.evil.example",
            "10.1.2.4",
            "proxy.example",
            "localhost:6060.evil.example",
            "localhost:x",
            "\u{ff}",
            "127.0.0.1@evil.example",
        ] {
            assert!(!hosts.allows(host.as_bytes(), local), "{host}");
        }
        assert!(!hosts.allows(b"local\xff", local));
    }

    #[test]
    fn exact_hosts_need_their_port() {
        let hosts = Hosts::only(["127.0.0.1:7".to_owned()]);
        let local: SocketAddr = "127.0.0.1:7".parse().unwrap();
        assert!(hosts.allows(b"127.0.0.1:7", local));
        assert!(!hosts.allows(b"127.0.0.1", local) && !hosts.allows(b"127.0.0.1:8", local));
    }
}
