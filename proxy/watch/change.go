package watch

import (
	"fmt"

	"github.com/lychgate/lychgate/fencestore"
)

// Kind is what became of a resource.
type Kind uint8

// The kinds.
const (
	Granted Kind = iota + 1 // a lease began, under a token
	Ended                   // it was released, or expired
	Broken                  // it was ended by force, or nobody held it; the token was issued to nobody
)

func (k Kind) String() string {
	switch k {
	case Granted:
		return "granted"
	case Ended:
		return "ended"
	case Broken:
		return "broken"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Change is one thing that became true of a resource.
type Change struct {
	Kind     Kind
	Resource string
	Token    fencestore.Token // 0: of a Broken that came from a restored cluster
	Lease    string           // hash of the lease that began or ended; empty: none
}

// Message is some changes in the order in which they happened.
type Message struct {
	Changes  []Change
	Revision string // to go on from
	Resync   bool   // changes before these were missed
}

// Lock is a resource and who holds it.
type Lock struct {
	Resource string
	Holders  []Holder
	Complete bool // these are all
}

// Holder is a live lease.
type Holder struct {
	Token fencestore.Token
	Lease string // its hash
}

// demands are what a change asks of one listener.
type demands struct {
	end   bool // the bindings of the lease end
	raise bool // the floor goes up: there are older bindings
	look  bool // the floor goes up if the store has one
}

// demandsOf decides. older says whether the listener has bindings below the change's token.
//
// A grant is of interest where there are older bindings, and there only: a record for each resource of the cluster in
// each store would cost all of them more than an old holder who is not there can do harm. He is refused when he comes
// (gate.Leases). A break is somebody's wish to fence, and rare, so it also goes where only a record is left.
func demandsOf(c Change, cut, older bool) demands {
	switch c.Kind {
	case Granted:
		return demands{raise: older}
	case Ended:
		return demands{end: cut && c.Lease != ""}
	case Broken:
		return demands{end: cut && c.Lease != "", raise: older && c.Token > 0, look: !older && c.Token > 0}
	}
	return demands{}
}
