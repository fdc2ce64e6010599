package api

// members are all nodes of the cluster.
func (s *Server) members() []Member { return *s.roster.Load() }

// SetMembers replaces what the server knows of the nodes of the cluster.
func (s *Server) SetMembers(members []Member) {
	s.roster.Store(&members)
	s.peers.learn(members...)
}
