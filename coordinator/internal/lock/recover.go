package lock

// Recover begins another life of the cluster, after a state was restored that may lack what its last life did: every
// lease and wait ends, and the incarnation rises, so that every later token is above all that were ever issued.
// Requests are remembered as ended. It is refused unless Cluster is the state's and Incarnation is above its own.
type Recover struct {
	Cluster     string
	Incarnation uint32
}

func (Recover) command() {}

// Recovered says that a life of the cluster began. What ended for it comes before.
type Recovered struct{ Incarnation uint32 }

func (Recovered) event() {}
