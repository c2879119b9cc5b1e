package localmodal_test

import (
	"os"
	"path/filepath"
	"testing"

	modal "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/overwinter-dev/overwinter/internal/localmodal"
	"github.com/overwinter-dev/overwinter/internal/localmodal/access"
	"github.com/overwinter-dev/overwinter/internal/localmodal/localmodaltest"
	"github.com/overwinter-dev/overwinter/internal/memorytest"
)

func TestCallsNeedTokenOfInstallation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	token := b.server.Token()
	for name, wrong := range map[string]access.Token{
		"another":      access.New(),
		"no secret":    {ID: token.ID, Secret: "x"},
		"another id":   {ID: "ak-local", Secret: token.Secret},
		"any word":     {ID: "ak-local", Secret: "as-local"},
		"a bit longer": {ID: token.ID, Secret: token.Secret + "x"},
	} {
		c := localmodaltest.Client(t, b.server.URL(), wrong)
		_, err := c.Apps.FromName(b.ctx, "x", &modal.AppFromNameParams{CreateIfMissing: true})
		require.Equal(t, codes.Unauthenticated, status.Code(err), "%s: %v", name, err)
		require.NotContains(t, err.Error(), token.Secret)
	}
}

// Every method of the control plane is refused without a token.
func TestMethodsRequireToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn := dial(t, b.server)
	for _, service := range []grpc.ServiceDesc{pb.ModalClient_ServiceDesc, pb.TaskCommandRouter_ServiceDesc} {
		for _, m := range service.Methods {
			err := conn.Invoke(b.ctx, "/"+service.ServiceName+"/"+m.MethodName, &emptypb.Empty{}, &emptypb.Empty{})
			require.Equal(t, codes.Unauthenticated, status.Code(err), "%s: %v", m.MethodName, err)
		}
		for _, m := range service.Streams {
			stream, err := conn.NewStream(b.ctx, &grpc.StreamDesc{ServerStreams: m.ServerStreams, ClientStreams: m.ClientStreams}, "/"+service.ServiceName+"/"+m.StreamName)
			require.NoError(t, err)
			require.NoError(t, stream.CloseSend())
			err = stream.RecvMsg(&emptypb.Empty{})
			require.Equal(t, codes.Unauthenticated, status.Code(err), "%s: %v", m.StreamName, err)
		}
	}
}

func dial(t *testing.T, s *localmodal.Server) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(s.URL()[len("http://"):], grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

// The token of one sandbox does not give access to another.
func TestRouterTokensAreForOneTask(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mine, other := b.create(nil), b.create(nil)
	conn := dial(t, b.server)
	control := metadata.AppendToOutgoingContext(b.ctx, "x-modal-token-id", b.server.Token().ID, "x-modal-token-secret", b.server.Token().Secret)
	client, router := pb.NewModalClientClient(conn), pb.NewTaskCommandRouterClient(conn)
	taskOf := func(sb *modal.Sandbox) string {
		r, err := client.SandboxGetTaskIdV2(control, pb.SandboxGetTaskIdRequest_builder{SandboxId: sb.SandboxID}.Build())
		require.NoError(t, err)
		return r.GetTaskId()
	}
	granted, err := client.SandboxGetCommandRouterAccess(control, pb.SandboxGetCommandRouterAccessRequest_builder{SandboxId: new(mine.SandboxID)}.Build())
	require.NoError(t, err)
	ctx := metadata.AppendToOutgoingContext(b.ctx, "authorization", "Bearer "+granted.GetJwt())
	start := func(task string) error {
		_, err := router.TaskExecStart(ctx, pb.TaskExecStartRequest_builder{TaskId: task, ExecId: "e", CommandArgs: []string{"cat"}}.Build())
		return err
	}
	require.NoError(t, start(taskOf(mine)))
	require.Equal(t, codes.PermissionDenied, status.Code(start(taskOf(other))))
	require.Equal(t, codes.PermissionDenied, status.Code(start("")))

	read, err := router.TaskExecStdioRead(ctx, pb.TaskExecStdioReadRequest_builder{TaskId: taskOf(other), ExecId: "e"}.Build())
	require.NoError(t, err)
	_, err = read.Recv()
	require.Equal(t, codes.PermissionDenied, status.Code(err))

	write := func(task string) error {
		stream, err := router.TaskExecStdinWriteStream(ctx)
		require.NoError(t, err)
		_ = stream.Send(pb.TaskExecStdinWriteStreamRequest_builder{ // the response has the result
			Start: pb.TaskExecStdinWriteStreamStart_builder{TaskId: task, ExecId: "e"}.Build(),
		}.Build())
		_ = stream.Send(pb.TaskExecStdinWriteStreamRequest_builder{End: &pb.TaskExecStdinWriteStreamEnd{}}.Build())
		_, err = stream.CloseAndRecv()
		return err
	}
	require.Equal(t, codes.PermissionDenied, status.Code(write(taskOf(other))))
	require.NoError(t, write(taskOf(mine)))

	// The token that every client gets gives access to no sandbox.
	any, err := client.AuthTokenGet(control, &pb.AuthTokenGetRequest{})
	require.NoError(t, err)
	ctx = metadata.AppendToOutgoingContext(b.ctx, "authorization", "Bearer "+any.GetToken())
	require.Equal(t, codes.Unauthenticated, status.Code(start(taskOf(mine))))
}

// Directories that an earlier version left accessible to other users of the machine become private.
func TestDataDirectoriesArePrivate(t *testing.T) {
	t.Parallel()
	dir := memorytest.Dir(t)
	require.NoError(t, os.Chmod(dir, 0o755))
	names := []string{"layers", "boxes", "building", "trash", "archives", "scratch", "volumes"}
	for _, name := range names {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	localmodaltest.Start(t, options(t, dir))
	for _, name := range append(names, ".", "records") {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, "%s has mode %v", name, info.Mode())
	}
}

func TestDataDirectoryOfAnotherUserIsRefused(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	dir := memorytest.Dir(t)
	require.NoError(t, os.Chown(dir, nobody, nobody))
	_, err := localmodal.New(options(t, dir))
	require.ErrorContains(t, err, "belongs to another user")
}
