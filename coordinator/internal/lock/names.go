package lock

import "strconv"

// The names below are for logs, metrics and tests; they are on no wire.

func nameOf(names []string, i uint8) string {
	if int(i) < len(names) && names[i] != "" {
		return names[i]
	}
	return "unknown(" + strconv.Itoa(int(i)) + ")"
}

// String is the reason in lower-case words joined by underscores.
func (r Reason) String() string {
	return nameOf([]string{
		ReasonHeld:                  "held",
		ReasonAlreadyHeld:           "already_held",
		ReasonLeaseEnded:            "lease_ended",
		ReasonNotOwner:              "not_owner",
		ReasonRequestMismatch:       "request_mismatch",
		ReasonRequestTooOld:         "request_too_old",
		ReasonRequestEnded:          "request_ended",
		ReasonRequestCancelled:      "request_cancelled",
		ReasonTTLTooShort:           "ttl_too_short",
		ReasonTTLTooLong:            "ttl_too_long",
		ReasonWaitTooLong:           "wait_too_long",
		ReasonModeNotAllowed:        "mode_not_allowed",
		ReasonTooManyWaiters:        "too_many_waiters",
		ReasonTooManyRequests:       "too_many_requests",
		ReasonTokensExhausted:       "tokens_exhausted",
		ReasonNotInitialised:        "not_initialised",
		ReasonRequestAhead:          "request_ahead",
		ReasonLeaseIDTaken:          "lease_id_taken",
		ReasonConfigInvalid:         "config_invalid",
		ReasonDeadlock:              "deadlock",
		ReasonTooManyLeases:         "too_many_leases",
		ReasonRateLimited:           "rate_limited",
		ReasonHoldTooLong:           "hold_too_long",
		ReasonLockDelayed:           "lock_delayed",
		ReasonNoSuchWait:            "no_such_wait",
		ReasonPolicyInvalid:         "policy_invalid",
		ReasonNoSuchPolicy:          "no_such_policy",
		ReasonTooManyPolicies:       "too_many_policies",
		ReasonNoSuchKey:             "no_such_key",
		ReasonTooManyKeys:           "too_many_keys",
		ReasonMemberInvalid:         "member_invalid",
		ReasonNoSuchMember:          "no_such_member",
		ReasonTooManyMembers:        "too_many_members",
		ReasonOtherCluster:          "other_cluster",
		ReasonIncarnationTooLow:     "incarnation_too_low",
		ReasonIncarnationTooHigh:    "incarnation_too_high",
		ReasonTooManyTenantRequests: "too_many_tenant_requests",
	}, uint8(r))
}

// String is the cause in one word.
func (c EndCause) String() string {
	return nameOf([]string{
		EndReleased:  "released",
		EndExpired:   "expired",
		EndUnclaimed: "unclaimed",
		EndCancelled: "cancelled",
		EndBroken:    "broken",
		EndRecovered: "recovered",
	}, uint8(c))
}

// String is the cause in words joined by underscores.
func (c WaitCause) String() string {
	return nameOf([]string{
		WaitTimedOut:   "timed_out",
		WaitCancelled:  "cancelled",
		WaitAbandoned:  "abandoned",
		WaitDeadlocked: "deadlocked",
		WaitRecovered:  "recovered",
	}, uint8(c))
}

// String is the state in one word.
func (s RequestState) String() string {
	return nameOf([]string{
		RequestUnknown: "unknown",
		RequestWaiting: "waiting",
		RequestHeld:    "held",
		RequestEnded:   "ended",
	}, uint8(s))
}

// String is the kind in one word.
func (k TargetKind) String() string {
	return nameOf([]string{TargetPrefix: "prefix", TargetTenant: "tenant"}, uint8(k))
}

func (t Target) String() string { return t.Kind.String() + " " + strconv.Quote(t.Name) }

func (o Owner) String() string { return string(o.Identity) + "/" + o.Name }
