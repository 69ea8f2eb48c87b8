//! The Prometheus of a platform, with the shipped rules in faster time.

use super::Fleet;

impl Fleet {
    /// The alert rules of `config/`, sixty times faster, with the same job names.
    pub(super) fn configure_prometheus(&self) -> anyhow::Result<()> {
        let rules = std::fs::read_to_string(self.repository.join("config/alerts.yml"))?;
        std::fs::write(self.directory.join("alerts.yml"), faster(&rules))?;
        let ports = self.ports;
        let job = |name: &str, ports: &[u16]| {
            let targets: Vec<String> = ports.iter().map(|port| format!("\"127.0.0.1:{port}\"")).collect();
            format!("  - job_name: {name}\n    static_configs: [{{targets: [{}]}}]\n", targets.join(", "))
        };
        let text = format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\n\
             rule_files: [alerts.yml]\nscrape_configs:\n{}{}{}",
            job("gateway", &ports.admin),
            job("orders-service", &[ports.orders_admin]),
            job("domains-service", &[ports.domains_admin]),
        );
        Ok(std::fs::write(self.directory.join("prometheus.yml"), text)?)
    }
}

/// The rules with all times divided by sixty.
fn faster(rules: &str) -> String {
    let mut out = String::with_capacity(rules.len());
    let mut digits = String::new();
    for letter in rules.chars() {
        if letter.is_ascii_digit() {
            digits.push(letter);
            continue;
        }
        let number: u64 = digits.parse().unwrap_or(0);
        // A time is a number, a unit, and then the end of the word: `5m]`, `for: 2m`.
        match letter {
            'd' if number > 0 => out.push_str(&format!("{}m", number * 24)),
            'h' if number > 0 => out.push_str(&format!("{number}m")),
            'm' if number > 0 => out.push_str(&format!("{number}s")),
            other => {
                out.push_str(&digits);
                out.push(other);
            }
        }
        digits.clear();
    }
    out.push_str(&digits);
    out.replace("timestamp_seconds > 300", "timestamp_seconds > 5")
}
