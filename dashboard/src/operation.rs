//! The operations of the API that pages call.

contract::words! {
    /// An operation of the API that pages call, by its `operationId`. Method and path stand in the API's own list.
    #[expect(missing_docs, reason = "the interface description says what each does")]
    pub enum Operation {
        ShowProject = "showProject",
        ShowUsage = "showUsage",
        ListEvents = "listEvents",
        ListKeys = "listKeys",
        CreateKey = "createKey",
        RotateKey = "rotateKey",
        RevokeKey = "revokeKey",
        CheckDomain = "checkDomain",
        ListDomains = "listDomains",
        AddDomain = "addDomain",
        ShowDomain = "showDomain",
        ChangeDomain = "changeDomain",
        VerifyDomain = "verifyDomain",
        RemoveDomain = "removeDomain",
        ListDomainEvents = "listDomainEvents",
        ListWebhooks = "listWebhooks",
        CreateWebhook = "createWebhook",
        ShowWebhook = "showWebhook",
        ChangeWebhook = "changeWebhook",
        RemoveWebhook = "removeWebhook",
        RotateWebhookSecret = "rotateWebhookSecret",
        TestWebhook = "testWebhook",
        ListWebhookDeliveries = "listWebhookDeliveries",
        RepeatWebhookDelivery = "repeatWebhookDelivery",
        ListProjects = "listProjects",
        ListNodes = "listNodes",
        ShowStatus = "showStatus",
        ListWithdrawals = "listWithdrawals",
        ShowOverview = "showOverview",
    }
}
