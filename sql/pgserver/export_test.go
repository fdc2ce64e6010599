package pgserver

// Forget gives the folder up as the death of the process would, with the server still running.
func (s *Server) Forget() error { return s.lock.Close() }
