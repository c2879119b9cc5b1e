package localmodal

import (
	"context"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

const (
	defaultEnvironment  = "main"
	imageBuilderVersion = "2025.06"
)

// AuthTokenGet returns the token that the SDK sends with every call.
func (s *Server) AuthTokenGet(context.Context, *pb.AuthTokenGetRequest) (*pb.AuthTokenGetResponse, error) {
	token, err := s.signer.issue("client", clientTokenLife)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return pb.AuthTokenGetResponse_builder{Token: token}.Build(), nil
}

// ClientHello confirms the connection.
func (s *Server) ClientHello(context.Context, *emptypb.Empty) (*pb.ClientHelloResponse, error) {
	return &pb.ClientHelloResponse{}, nil
}

// EnvironmentGetOrCreate accepts any environment: here they are only names.
func (s *Server) EnvironmentGetOrCreate(_ context.Context, q *pb.EnvironmentGetOrCreateRequest) (*pb.EnvironmentGetOrCreateResponse, error) {
	name := environment(q.GetDeploymentName())
	return pb.EnvironmentGetOrCreateResponse_builder{
		EnvironmentId: "en-" + name,
		Metadata: pb.EnvironmentMetadata_builder{
			Name:     name,
			Settings: pb.EnvironmentSettings_builder{ImageBuilderVersion: imageBuilderVersion, WebhookSuffix: "local"}.Build(),
		}.Build(),
	}.Build(), nil
}

func environment(name string) string {
	if name == "" {
		return defaultEnvironment
	}
	return name
}

// AppGetOrCreate finds an app by name, or creates it if requested.
func (s *Server) AppGetOrCreate(_ context.Context, q *pb.AppGetOrCreateRequest) (*pb.AppGetOrCreateResponse, error) {
	s.naming.Lock()
	defer s.naming.Unlock()
	if app, ok := s.app(q.GetEnvironmentName(), q.GetAppName()); ok {
		return pb.AppGetOrCreateResponse_builder{AppId: app.ID}.Build(), nil
	}
	if q.GetObjectCreationType() != pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_IF_MISSING {
		return nil, status.Errorf(codes.NotFound, "app %q not found", q.GetAppName())
	}
	app := appRecord{ID: newID("ap"), Name: q.GetAppName(), Environment: environment(q.GetEnvironmentName())}
	if err := s.records.apps.Put(app.ID, app); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return pb.AppGetOrCreateResponse_builder{AppId: app.ID}.Build(), nil
}

func (s *Server) app(env, name string) (appRecord, bool) {
	env = environment(env)
	return s.records.apps.Find(func(a appRecord) bool { return a.Name == name && a.Environment == env })
}

// ProxyGet never finds a proxy: the local Modal has none.
func (s *Server) ProxyGet(_ context.Context, q *pb.ProxyGetRequest) (*pb.ProxyGetResponse, error) {
	return nil, status.Errorf(codes.NotFound, "proxy %q not found: the local Modal has none", q.GetName())
}

// FunctionGet never finds a function: nothing can be deployed to the local Modal.
func (s *Server) FunctionGet(_ context.Context, q *pb.FunctionGetRequest) (*pb.FunctionGetResponse, error) {
	return nil, status.Errorf(codes.NotFound, "function %q not found: the local Modal runs sandboxes only", q.GetAppName()+"/"+q.GetObjectTag())
}
