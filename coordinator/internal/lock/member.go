package lock

import (
	"cmp"
	"slices"
)

// Member is a node as the cluster knows it: where it listens.
type Member struct {
	ID   string
	Peer string
	GRPC string
	HTTP string
}

// PutMember makes the addresses of a node that joined known, or changes them.
type PutMember struct{ Member }

// DropMember forgets a node's addresses; refused with ReasonNoSuchMember if there are none.
type DropMember struct{ ID string }

func (PutMember) command()  {}
func (DropMember) command() {}

// MemberChanged says that a member's addresses are known, have changed, or are gone.
type MemberChanged struct {
	Member Member
	Gone   bool
}

func (MemberChanged) event() {}

// maxMembers bounds the members, and maxMemberText the bytes of an id or address.
const (
	maxMembers    = 100
	maxMemberText = 256
)

func (m *Machine) putMember(c PutMember) Result {
	for _, s := range []string{c.ID, c.Peer, c.GRPC, c.HTTP} {
		if s == "" || len(s) > maxMemberText {
			return Refused{Reason: ReasonMemberInvalid}
		}
	}
	at, found := slices.BinarySearchFunc(m.members, c.Member, compareMembers)
	switch {
	case found && m.members[at] == c.Member:
		return Done{}
	case !found && len(m.members) >= maxMembers:
		return Refused{Reason: ReasonTooManyMembers, Count: maxMembers}
	}
	m.members = slices.Clone(m.members) // a snapshot may share the old slice
	if found {
		m.members[at] = c.Member
	} else {
		m.members = slices.Insert(m.members, at, c.Member)
	}
	m.emit(MemberChanged{Member: c.Member})
	return Done{}
}

func (m *Machine) dropMember(c DropMember) Result {
	at, found := slices.BinarySearchFunc(m.members, Member{ID: c.ID}, compareMembers)
	if !found {
		return Refused{Reason: ReasonNoSuchMember}
	}
	m.emit(MemberChanged{Member: m.members[at], Gone: true})
	m.members = slices.Delete(slices.Clone(m.members), at, at+1)
	return Done{}
}

func compareMembers(a, b Member) int { return cmp.Compare(a.ID, b.ID) }

// Members lists the nodes whose addresses are known by the log, by id. The caller must not change them.
func (m *Machine) Members() []Member { return slices.Clone(m.members) }
