// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Command csi-call makes one call of the Container Storage Interface, as kubelet and its
// helpers do:
//
//	csi-call -endpoint unix:///csi/csi.sock Node/NodeStageVolume '{"volume_id": "vol-1", …}'
//
// It prints the response as JSON. If the driver refuses the call, it prints gRPC's code and
// the driver's message, and exits with 1.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

func main() {
	err := run(os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "csi-call: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("csi-call", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "usage: csi-call [flags] SERVICE/METHOD [REQUEST]\n\n"+
			"SERVICE is Identity, Controller or Node. REQUEST is JSON, by default {}.\n\n")
		flags.PrintDefaults()
	}
	endpoint := flags.String("endpoint", os.Getenv("CSI_ENDPOINT"),
		"the `address` of the driver: unix:///csi/csi.sock or tcp://host:port")
	timeout := flags.Duration("timeout", 2*time.Minute, "how long to wait for the response")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() < 1 || flags.NArg() > 2 {
		return errors.New("give a method, such as Node/NodeGetInfo, and a request if it has one")
	}
	method, err := findMethod(flags.Arg(0))
	if err != nil {
		return err
	}
	request, response := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
	if text := flags.Arg(1); text != "" {
		if err := protojson.Unmarshal([]byte(text), request); err != nil {
			return fmt.Errorf("the request isn't a %s: %w", method.Input().Name(), err)
		}
	}
	address, err := address(*endpoint)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	err = conn.Invoke(ctx, fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name()), request, response)
	if s, _ := status.FromError(err); err != nil {
		err = fmt.Errorf("%s: %s: %s", method.Name(), s.Code(), s.Message())
	}
	if err := errors.Join(err, conn.Close()); err != nil {
		return err
	}
	return printJSON(out, response)
}

// findMethod returns the method that a name such as Node/NodeGetInfo means.
func findMethod(name string) (protoreflect.MethodDescriptor, error) {
	service, method, _ := strings.Cut(name, "/")
	services := csi.File_csi_proto.Services()
	if s := services.ByName(protoreflect.Name(service)); s != nil {
		if m := s.Methods().ByName(protoreflect.Name(method)); m != nil && !m.IsStreamingServer() && !m.IsStreamingClient() {
			return m, nil
		}
	}
	return nil, fmt.Errorf("there is no method %q: the form is Node/NodeGetInfo", name)
}

// address turns an endpoint, in the form of drivers' flags, into gRPC's form.
func address(endpoint string) (string, error) {
	network, rest, ok := strings.Cut(endpoint, "://")
	switch {
	case ok && network == "unix":
		return "unix:" + rest, nil
	case ok && network == "tcp":
		return rest, nil
	}
	return "", fmt.Errorf("-endpoint=%s: must have the form unix:///csi/csi.sock or tcp://host:port", endpoint)
}

// printJSON prints a message with the names of the specification, the same each time.
func printJSON(out io.Writer, m proto.Message) error {
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return err
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, text, "", "  "); err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, indented.String())
	return err
}
