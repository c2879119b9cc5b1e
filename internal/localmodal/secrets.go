package localmodal

import (
	"context"
	"fmt"
	"maps"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// PutSecret defines a named secret in the default environment, as one does on
// Modal's web page; the SDK can only refer to those by name. Its values are kept
// in the data directory, readable by its owner alone.
func (s *Server) PutSecret(name string, env map[string]string) error {
	s.naming.Lock()
	defer s.naming.Unlock()
	secret, ok := s.secret(defaultEnvironment, name)
	if !ok {
		secret = secretRecord{ID: newID("st"), Name: name, Environment: defaultEnvironment}
	}
	secret.Env = maps.Clone(env)
	if err := s.records.secrets.Put(secret.ID, secret); err != nil {
		return fmt.Errorf("define secret %s: %w", name, err)
	}
	return nil
}

func (s *Server) secret(env, name string) (secretRecord, bool) {
	env = environment(env)
	return s.records.secrets.Find(func(r secretRecord) bool { return r.Name == name && r.Environment == env })
}

// SecretGetOrCreate finds a named secret, or keeps the given values: under their
// name, or without one until the server ends.
func (s *Server) SecretGetOrCreate(_ context.Context, q *pb.SecretGetOrCreateRequest) (*pb.SecretGetOrCreateResponse, error) {
	s.naming.Lock()
	defer s.naming.Unlock()
	name := q.GetDeploymentName()
	if name == "" {
		id := newID("st")
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unnamedSecrets[id] = maps.Clone(q.GetEnvDict())
		return pb.SecretGetOrCreateResponse_builder{SecretId: id}.Build(), nil
	}
	secret, ok := s.secret(q.GetEnvironmentName(), name)
	if !ok && q.GetObjectCreationType() == pb.ObjectCreationType_OBJECT_CREATION_TYPE_UNSPECIFIED {
		return nil, status.Errorf(codes.NotFound, "secret %q not found", name)
	}
	if !ok {
		secret = secretRecord{ID: newID("st"), Name: name, Environment: environment(q.GetEnvironmentName()), Env: q.GetEnvDict()}
		if err := s.records.secrets.Put(secret.ID, secret); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
	}
	for _, key := range q.GetRequiredKeys() {
		if _, ok := secret.Env[key]; !ok {
			return nil, status.Errorf(codes.NotFound, "secret %q is missing key(s): %s", name, key)
		}
	}
	return pb.SecretGetOrCreateResponse_builder{SecretId: secret.ID}.Build(), nil
}

// SecretDelete forgets a secret. Sandboxes that run keep what they got.
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

// Environment resolves secrets to variables, later ones over earlier ones.
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
