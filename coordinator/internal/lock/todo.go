package lock

func (m *Machine) killWait(KillWait) Result         { return Refused{Reason: ReasonNoSuchWait} }
func (m *Machine) putPolicy(PutPolicy) Result       { return Refused{Reason: ReasonPolicyInvalid} }
func (m *Machine) deletePolicy(DeletePolicy) Result { return Refused{Reason: ReasonNoSuchPolicy} }
func (m *Machine) recover(Recover) Result           { return Refused{Reason: ReasonIncarnationTooLow} }

// Edges lists who waits for whom.
func (m *Machine) Edges(limit int) (edges []Edge, complete bool) { return nil, true }

// Policies lists the policies: of prefixes, then of tenants, each by name.
func (m *Machine) Policies() []TargetedPolicy { return nil }
