//! Temporarily banned keys, as gateways report them to each other and to the control plane.

use serde::{Deserialize, Serialize};

use crate::key::KeyId;
use crate::text::words;
use crate::time::UnixSeconds;

words! {
    /// Who imposed a ban.
    pub enum BanReason {
        /// The rule: the key did not back off.
        Strikes = "strikes",
        /// A person.
        Operator = "operator",
    }
}

/// A temporary ban of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ban {
    /// The key.
    pub key: KeyId,
    /// When it was imposed.
    pub since: UnixSeconds,
    /// First second after the ban.
    pub until: UnixSeconds,
    /// Who imposed it.
    pub reason: BanReason,
    /// Which ban of the key within 24 hours this is; 4 for the fourth and every further one.
    pub level: u32,
    /// Decided in shadow mode, and not enforced.
    pub shadow: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ban_is_written_as_other_versions_read_it() {
        let text = r#"{"key":"key_abcdefghij234567","since":1,"until":61,"reason":"strikes","level":1,"shadow":false}"#;
        let ban: Ban = serde_json::from_str(text).unwrap();
        assert_eq!((ban.until, ban.reason), (UnixSeconds(61), BanReason::Strikes));
        assert_eq!(serde_json::to_string(&ban).unwrap(), text);
    }
}
