package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"strconv"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/server/api/adminservice/v1"
	"go.temporal.io/server/api/historyservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	grpcstatus "google.golang.org/grpc/status"
)

// try writes the result of each way to use the addresses.
func try(addresses []string) {
	anyKey := credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
	for _, address := range addresses {
		report := func(way string, transport credentials.TransportCredentials, call func(context.Context, *grpc.ClientConn) error) {
			conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(transport))
			if err != nil {
				panic(err)
			}
			defer conn.Close()
			ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
			defer cancel()
			fmt.Fprintf(os.Stdout, "%s %s: %s\n", way, address, grpcstatus.Code(call(ctx, conn)))
		}
		history := func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := historyservice.NewHistoryServiceClient(conn).DescribeHistoryHost(ctx, &historyservice.DescribeHistoryHostRequest{})
			return err
		}
		report("history", insecure.NewCredentials(), history)
		report("history over TLS", anyKey, history)
		report("frontend", insecure.NewCredentials(), func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := workflowservice.NewWorkflowServiceClient(conn).ListNamespaces(ctx, &workflowservice.ListNamespacesRequest{})
			return err
		})
		report("admin", insecure.NewCredentials(), func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := adminservice.NewAdminServiceClient(conn).DescribeCluster(ctx, &adminservice.DescribeClusterRequest{})
			return err
		})
		code := "none"
		if response, err := http.Get("http://" + address + "/api/v1/namespaces"); err == nil {
			code = strconv.Itoa(response.StatusCode)
			_ = response.Body.Close()
		}
		fmt.Fprintf(os.Stdout, "page %s: %s\n", address, code)
	}
}
