//! Titles, buttons and explanations that occur more than once, and sentences that code chooses.

macro_rules! words {
    ($($name:ident = $text:literal;)+) => { $(pub(crate) const $name: &str = $text;)+ };
}

words! {
    // Around every page.
    PRODUCT = "Tollhouse";
    DOMAINS = "Domains";
    KEYS = "API keys";
    USAGE = "Usage";
    ACTIVITY = "Activity";
    WEBHOOKS = "Webhooks";
    OPERATOR = "Overview";
    PROJECTS = "Projects";
    MORE = "Show more";
    NEXT_TRY = "Next attempt";
    NONE = "–";

    // Sign-in.
    SIGN_IN = "Sign in";
    KEY_LABEL = "API key";
    NOT_A_KEY = "This is not a key: it is incomplete or mistyped. Copy it again, from th_ to its last character.";
    UNKNOWN_KEY = "This key is not valid here: it is revoked, expired, or belongs to another platform.";
    KEY_WITHOUT_USE = "This key can neither show domains nor create keys. Use one with the scope domains:read, domains:write or keys:write.";
    ENTER = "Sign in as operator";
    LINK_SPENT = "This link is used up or older than five minutes. Make a new one: tollhouse dashboard-link";

    // When a page cannot be shown.
    FOREIGN_FORM = "The form was not sent from a page of this dashboard, so nothing was changed.";
    STALE_FORM = "The form belongs to an earlier session, so nothing was changed. Go back, reload the page and try again.";
    TOO_MANY_WATCHERS = "Too many pages update live. This page reloads every few seconds.";

    // Domains.
    ADD_DOMAIN = "Add domain";
    PLAN_REQUIRED = "Custom domains come with the Pro plan";
    PLAN_REQUIRED_LEAD = "This project is on the Free plan, which is served on the platform's own name. With Pro or above you can attach domains of your own.";
    SEE_PLANS = "Compare plans";
    NOT_DEPLOYED = "Deploy first";
    NOT_DEPLOYED_LEAD = "A domain can be added once the project has been deployed successfully.";
    DOMAIN = "Domain";
    CERTIFICATE = "Certificate";
    PRIMARY = "Primary";

    IS_APEX = "This is an apex domain, such as example.com. DNS allows no CNAME there, so create an ALIAS or ANAME record. Not every DNS provider offers them; if yours does not, use a subdomain such as www.";
    RECORD_HINT = "Copy each value exactly. Turn off your DNS provider's proxy for it.";

    RECORDS = "DNS records";
    TYPE = "Type";
    NAME = "Name";
    VALUE = "Value";
    TTL = "TTL";
    STATE = "State";
    ACT_HERE = "A problem that only you can fix. It is listed below with its fix.";
    SUSPENDED_HERE = "Visitors are not served here. The problem and its fix are listed below.";
    CHECKED_NOT_YET = "Checked just now: a record is still missing. It is listed below.";
    NAMESERVERS = "What your nameservers answer";
    NAMESERVER = "Nameserver";
    ANSWER = "Answer";
    VERDICT = "Verdict";
    AUTHORITY = "Authority";
    VALID_UNTIL = "Valid until";
    REDIRECT_PRIMARY = "the primary domain";
    REMOVE = "Remove";
    REMOVE_DOMAIN = "Remove domain";
    REMOVE_LEAD = "Traffic stops at once, on every gateway. You can add the domain again later.";
    REMOVED = "Domain removed";

    // Keys.
    NEW_KEY = "Create key";
    EXPIRES = "Expires";
    USED = "Used";
    NEVER_USED = "Never used";
    ROTATE = "Rotate";
    REVOKE = "Revoke";

    // Usage.
    TODAY = "Today";
    LAST_30_DAYS = "The last 30 days";
    ADMITTED = "Admitted";
    REFUSED = "Refused: limit reached";
    BANNED = "Refused: key banned";
    REFUSED_LEGEND = "Refused or banned";
    DATE = "Date";
    PLANS = "Plans";
    PLAN = "Plan";
    PER_MINUTE = "Requests per minute";
    PER_DAY = "Requests per day";
    CUSTOM_DOMAINS = "Custom domains";

    // Activity.
    WHEN = "When";
    WHAT = "What";
    WHO = "By";

    // Webhooks.
    NEW_WEBHOOK = "Add webhook";
    EVENTS = "Events";
    SEND_AGAIN = "Send again";
    LAST_DELIVERY = "Last delivery";
    FAILING_SINCE = "Failing since";
    SWITCH_OFF = "Switch off";
    ROTATE_SECRET = "New secret";

    // Operator.
    GATEWAYS = "Gateways";
    REVISION = "Revision";
    BEHIND = "Behind";
    VERSION = "Version";
    LAST_SEEN = "Last seen";
    PROJECT = "Project";
}

/// The title of the page shown instead of one that cannot be shown.
pub(crate) const fn fault_title(status: u16) -> &'static str {
    match status {
        403 => "Not allowed",
        404 => "Not found",
        429 => "Too many attempts",
        400..500 => "That did not work",
        _ => "Not available right now",
    }
}

/// The confirmation of a form, by the word in the address.
pub(crate) fn notice(query: &str) -> Option<&'static str> {
    match query {
        "verified" => Some("Checked just now."),
        "made" => Some("The key was shown once. If you did not copy it, create a new key and revoke that one."),
        "verifying" => Some("The check is taking longer than usual. Its result appears here."),
        "saved" => Some("Saved. Every gateway applies it within a second."),
        "revoked" => Some("The key is revoked."),
        "removed" => Some("The webhook is removed."),
        "tested" => Some("Sending a test message. Its result appears below."),
        "repeated" => Some("It is being sent again."),
        _ => None,
    }
}
