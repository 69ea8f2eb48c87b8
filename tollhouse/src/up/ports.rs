//! Checks the ports of `up` before the start: all unusable ports are reported together, with their options.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use crate::arguments::Up;

/// Checks that all ports are different and free.
///
/// # Errors
/// Lists all unusable ports, with the options that choose others.
pub(super) fn check(options: &Up) -> anyhow::Result<()> {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let wanted = [
        ("--http-port", SocketAddr::new(options.listen, options.http_port)),
        ("--https-port", SocketAddr::new(options.listen, options.https_port)),
        ("--admin-port", SocketAddr::new(loopback, options.admin_port)),
    ];
    let mut wrong: Vec<String> = Vec::new();
    for (index, (option, address)) in wanted.iter().enumerate().filter(|(_, (_, address))| address.port() != 0) {
        let same = wanted.iter().take(index).find(|(_, other)| other.port() == address.port());
        match (same, TcpListener::bind(address)) {
            (Some((other, _)), _) => wrong.push(format!("{option} and {other} are both {}", address.port())),
            (None, Ok(_)) => {}
            (None, Err(error)) => wrong.push(format!("{option} {}: {}", address.port(), reason(*address, &error))),
        }
    }
    anyhow::ensure!(
        wrong.is_empty(),
        "{}. Choose other ports with {}; 0 takes any free port",
        wrong.join("; "),
        wanted.map(|(option, _)| option).join(", ")
    );
    Ok(())
}

fn reason(address: SocketAddr, error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::AddrInUse => format!("another program listens on {address}"),
        ErrorKind::PermissionDenied => format!(
            "the system lets only root listen on ports below 1024, by default (sysctl \
             net.ipv4.ip_unprivileged_port_start={})",
            address.port()
        ),
        _ => format!("cannot listen on {address}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &[&str]) -> Up {
        Up::read(line)
    }

    #[test]
    fn all_busy_ports_are_reported_together_with_their_options() {
        let busy = [0, 0].map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap());
        let [http, https] = busy.each_ref().map(|listener| listener.local_addr().unwrap().port().to_string());
        let line = ["--http-port", &http, "--https-port", &https, "--admin-port", "0"];
        let words = check(&options(&line)).unwrap_err().to_string();
        for part in [format!("--http-port {http}: another program"), format!("--https-port {https}: another program")] {
            assert!(words.contains(&part), "{words}");
        }
        assert!(!words.contains("--admin-port 0"), "{words}");
        assert!(check(&options(&["--http-port", "0", "--https-port", "0", "--admin-port", "0"])).is_ok());
    }

    #[test]
    fn two_options_cannot_have_the_same_port() {
        let free = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port().to_string();
        let line = ["--http-port", &free, "--https-port", &free, "--admin-port", "0"];
        let words = check(&options(&line)).unwrap_err().to_string();
        assert!(words.contains(&format!("--https-port and --http-port are both {free}")), "{words}");
    }
}
