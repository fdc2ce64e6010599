package api

import "google.golang.org/grpc"

// legibleStreams is legible for methods that take one request and stream their answer.
func legibleStreams(methods []grpc.StreamDesc) []grpc.StreamDesc {
	streams := make([]grpc.StreamDesc, len(methods))
	for i, method := range methods {
		streams[i] = method
		if !method.ClientStreams {
			streams[i].Handler = func(srv any, stream grpc.ServerStream) error {
				return method.Handler(srv, legibleStream{stream})
			}
		}
	}
	return streams
}

// legibleStream reads its request itself, so as to say what is wrong with it.
type legibleStream struct{ grpc.ServerStream }

// RecvMsg implements grpc.ServerStream.
func (s legibleStream) RecvMsg(request any) error {
	var f frame
	if err := s.ServerStream.RecvMsg(&f); err != nil {
		return err
	}
	if limit := maxSize(request); len(f.bytes) > limit {
		return tooLong(len(f.bytes), limit)
	}
	return f.read(request)
}
