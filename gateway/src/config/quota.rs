//! `[quota]`: where requests are counted, and what happens if the store is unavailable.

use std::num::NonZeroU32;
use std::time::Duration;

use chassis::config::Section;
use chassis::peer::CERTIFICATES_BYTES_MAX;
use chassis::secret::read_regular;
use contract::plan::Plan;

use quota::ban::BanSwitch;
use quota::settings::OnStoreDown;
use quota::store::redis::settings::{RedisAddress, RedisMode, RedisSettings};

/// Settings of quotas and bans.
#[derive(Clone, Debug)]
pub(crate) struct QuotaConfig {
    /// The servers that count for several gateways; `None`: this gateway counts alone.
    pub redis: Option<RedisSettings>,
    /// What happens while the store does not answer.
    pub on_store_down: OnStoreDown,
    /// Plans with limits that are counted and shown, but not enforced.
    pub shadow_plans: Vec<Plan>,
    /// Whether bans are off, only counted, or on.
    pub bans: BanSwitch,
    /// Failed authentications per address and minute.
    pub failed_authentications_per_minute: NonZeroU32,
}

contract::words! {
    /// The choices of `store`.
    enum StoreKind {
        Embedded = "embedded",
        Redis = "redis",
    }
}

pub(super) fn read(section: &Section<'_>) -> Option<QuotaConfig> {
    let store = section.value("store", StoreKind::Embedded);
    let redis = redis(&section.section("redis"), store == Some(StoreKind::Redis));
    let on_store_down = section.value("on_store_down", OnStoreDown::Share);
    let shadow_plans = section.list::<Plan>("shadow_plans");
    let bans = section.value("bans", BanSwitch::On);
    let failed_authentications = section.integer("failed_authentications_per_minute", 60, 1..=1_000_000);
    store?;
    Some(QuotaConfig {
        redis: redis?,
        on_store_down: on_store_down?,
        shadow_plans: shadow_plans?,
        bans: bans?,
        failed_authentications_per_minute: NonZeroU32::new(u32::try_from(failed_authentications?).ok()?)?,
    })
}

/// Reads the settings and reports mistakes, even if they are not used.
fn redis(section: &Section<'_>, used: bool) -> Option<Option<RedisSettings>> {
    let mode = section.value("mode", RedisMode::Standalone);
    let addresses = section.list::<RedisAddress>("urls");
    if used && addresses.as_ref().is_some_and(Vec::is_empty) {
        section.missing("urls", "[\"redis://127.0.0.1:6379\"]");
    }
    let master_name = section.value("master_name", "tollhouse".to_owned());
    let username = section.optional::<String>("username");
    let password = section.password("password");
    let ca_file = section.path("ca_certificate_file");
    let ca_certificate = match &ca_file {
        Some(Some(path)) => match read_regular(path, CERTIFICATES_BYTES_MAX) {
            Ok((pem, _)) => Some(Some(pem.to_vec())),
            Err(error) => {
                section.complain("ca_certificate_file", format!("cannot read it: {error}"));
                None
            }
        },
        Some(None) => Some(None),
        None => None,
    };
    let millis = Duration::from_millis;
    let call_budget = section.duration("call_budget", millis(50), millis(5)..=millis(1_000));
    let settings = RedisSettings {
        mode: mode?,
        addresses: addresses?,
        master_name: master_name?,
        username: username?,
        password: password?,
        ca_certificate: ca_certificate?,
        call_budget: call_budget?,
    };
    match (used, settings.addresses.is_empty()) {
        (false, _) => Some(None),
        (true, false) => Some(Some(settings)),
        (true, true) => None,
    }
}
