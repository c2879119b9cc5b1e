package localmodal

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// PutSecret defines a named secret, like Modal's web page or `modal secret create`; the Go SDK can
// only refer to such secrets by name. An empty environment means the default one. The values are
// stored in the data directory, readable only for its owner.
func (s *Server) PutSecret(environmentName, name string, env map[string]string) error {
	_, err := s.putSecret(pb.SecretGetOrCreateRequest_builder{
		DeploymentName: name, EnvironmentName: environmentName, EnvDict: env,
		ObjectCreationType: pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_OVERWRITE_IF_EXISTS,
	}.Build())
	if err != nil {
		return fmt.Errorf("define secret %s: %w", name, err)
	}
	return nil
}

func (s *Server) secret(env, name string) (secretRecord, bool) {
	env = environment(env)
	return s.records.secrets.Find(func(r secretRecord) bool { return r.Name == name && r.Environment == env })
}

// SecretGetOrCreate finds a named secret, or stores the given values: under their name, or if they
// have none until the server ends.
func (s *Server) SecretGetOrCreate(_ context.Context, q *pb.SecretGetOrCreateRequest) (*pb.SecretGetOrCreateResponse, error) {
	if q.GetDeploymentName() == "" {
		id := newID("st")
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unnamedSecrets[id] = maps.Clone(q.GetEnvDict())
		return pb.SecretGetOrCreateResponse_builder{SecretId: id}.Build(), nil
	}
	secret, err := s.putSecret(q)
	if err != nil {
		return nil, err
	}
	var absent []string
	for _, key := range q.GetRequiredKeys() {
		if _, ok := secret.Env[key]; !ok {
			absent = append(absent, key)
		}
	}
	if len(absent) > 0 {
		// Not codes.NotFound, which the SDK reports as a missing secret.
		return nil, status.Errorf(codes.FailedPrecondition, "Secret is missing key(s): %s", strings.Join(absent, ", "))
	}
	return pb.SecretGetOrCreateResponse_builder{
		SecretId: secret.ID, Metadata: pb.SecretMetadata_builder{Name: secret.Name, Keys: slices.Sorted(maps.Keys(secret.Env))}.Build(),
	}.Build(), nil
}

// putSecret finds, creates or replaces the named secret, according to the creation type.
func (s *Server) putSecret(q *pb.SecretGetOrCreateRequest) (secretRecord, error) {
	s.naming.Lock()
	defer s.naming.Unlock()
	name, kind := q.GetDeploymentName(), q.GetObjectCreationType()
	secret, ok := s.secret(q.GetEnvironmentName(), name)
	switch kind {
	case pb.ObjectCreationType_OBJECT_CREATION_TYPE_UNSPECIFIED:
		if !ok {
			return secretRecord{}, status.Errorf(codes.NotFound, "secret %q not found", name)
		}
		return secret, nil
	case pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_IF_MISSING:
		if ok {
			return secret, nil
		}
	case pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_FAIL_IF_EXISTS:
		if ok {
			return secretRecord{}, status.Errorf(codes.AlreadyExists, "secret %q exists", name)
		}
	case pb.ObjectCreationType_OBJECT_CREATION_TYPE_CREATE_OVERWRITE_IF_EXISTS:
	default:
		return secretRecord{}, status.Errorf(codes.InvalidArgument, "a named secret cannot be made as %s", kind)
	}
	if !ok {
		secret = secretRecord{ID: newID("st"), Name: name, Environment: environment(q.GetEnvironmentName())}
	}
	secret.Env = maps.Clone(q.GetEnvDict())
	if err := s.records.secrets.Put(secret.ID, secret); err != nil {
		return secretRecord{}, status.Error(codes.Internal, err.Error())
	}
	return secret, nil
}

// SecretDelete deletes a secret. Running sandboxes keep its values.
func (s *Server) SecretDelete(_ context.Context, q *pb.SecretDeleteRequest) (*emptypb.Empty, error) {
	s.mu.Lock()
	delete(s.unnamedSecrets, q.GetSecretId())
	s.mu.Unlock()
	if err := s.records.secrets.Delete(q.GetSecretId()); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &emptypb.Empty{}, nil
}

func (s *Server) secretEnv(id string) (map[string]string, error) {
	if secret, ok := s.records.secrets.Get(id); ok {
		return secret.Env, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if env, ok := s.unnamedSecrets[id]; ok {
		return env, nil
	}
	return nil, status.Errorf(codes.NotFound, "secret %s not found", id)
}

func (s *Server) secretsEnv(ids []string) (map[string]string, error) {
	env := map[string]string{}
	for _, id := range ids {
		values, err := s.secretEnv(id)
		if err != nil {
			return nil, err
		}
		maps.Copy(env, values)
	}
	return env, nil
}

// Environment resolves secrets to variables; later ones override earlier ones.
func (s *Server) Environment(sources []*pb.SecretSource) (map[string]string, error) {
	env := map[string]string{}
	for _, source := range sources {
		values := source.GetEnv().GetContents()
		if source.HasSecretId() {
			var err error
			if values, err = s.secretEnv(source.GetSecretId()); err != nil {
				return nil, err
			}
		}
		maps.Copy(env, values)
	}
	return env, nil
}
