// Copyright The CSI Proxy Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wire holds the agreements between both ends of a call: which messages of two versions are
// the same in bytes, and how the errors of operations travel as gRPC statuses.
package wire

import (
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// ClashError is the first difference between two messages that forbids using one's Go type for the
// other.
type ClashError struct {
	A, B  protoreflect.FullName    // the messages
	Field protoreflect.FieldNumber // the field that differs
	What  string                   // what differs about it
}

func (e *ClashError) Error() string {
	return fmt.Sprintf("%s and %s clash at field %d: %s", e.A, e.B, e.Field, e.What)
}

// Identical proves that every encoding of one message is an encoding of the other with the same
// meaning, by comparing all declarations in both, and in the messages and enums they contain. For a
// difference, Identical returns a *ClashError.
//
// Field and enum value names must agree too, even though names aren't on the wire: a number with
// two names most likely has two meanings, and nothing else would reveal the difference.
func Identical(a, b protoreflect.MessageDescriptor) error {
	return comparison{}.messages(a, b)
}

// comparison holds all pairs of messages compared, or being compared: a message may contain itself.
type comparison map[[2]protoreflect.FullName]bool

func (c comparison) messages(a, b protoreflect.MessageDescriptor) error {
	pair := [2]protoreflect.FullName{a.FullName(), b.FullName()}
	if c[pair] {
		return nil
	}
	c[pair] = true

	for i := range a.Fields().Len() {
		inA := a.Fields().Get(i)
		inB := b.Fields().ByNumber(inA.Number())
		what := "only the first has it"
		if inB != nil {
			what = difference(inA, inB)
		}
		if what != "" {
			return &ClashError{a.FullName(), b.FullName(), inA.Number(), what}
		}
		if inA.Message() != nil {
			if err := c.messages(inA.Message(), inB.Message()); err != nil {
				return err
			}
		}
	}
	for i := range b.Fields().Len() {
		if number := b.Fields().Get(i).Number(); a.Fields().ByNumber(number) == nil {
			return &ClashError{a.FullName(), b.FullName(), number, "only the second has it"}
		}
	}
	return nil
}

// difference returns the difference between two fields of one number, or "". Messages within the
// fields aren't compared.
func difference(a, b protoreflect.FieldDescriptor) string {
	switch {
	case a.Name() != b.Name():
		return fmt.Sprintf("names %s and %s", a.Name(), b.Name())
	case a.Kind() != b.Kind():
		return fmt.Sprintf("types %s and %s", a.Kind(), b.Kind())
	case a.Cardinality() != b.Cardinality():
		return fmt.Sprintf("%s and %s", a.Cardinality(), b.Cardinality())
	case a.IsMap() != b.IsMap():
		return "only one is a map"
	case a.IsPacked() != b.IsPacked():
		return "only one is packed"
	case a.HasPresence() != b.HasPresence():
		return "only one tells unset from zero"
	case !sameOneof(a.ContainingOneof(), b.ContainingOneof()):
		return "not in the same oneof"
	case a.Enum() != nil && !sameEnum(a.Enum(), b.Enum()):
		return fmt.Sprintf("enums %s and %s", a.Enum().FullName(), b.Enum().FullName())
	}
	return ""
}

// sameOneof reports whether two oneofs, or none, have the same fields.
func sameOneof(a, b protoreflect.OneofDescriptor) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.Fields().Len() != b.Fields().Len() {
		return false
	}
	for i := range a.Fields().Len() {
		if b.Fields().ByNumber(a.Fields().Get(i).Number()) == nil {
			return false
		}
	}
	return true
}

// sameEnum reports whether two enums have the same values under the same names and treat unknown
// values alike.
func sameEnum(a, b protoreflect.EnumDescriptor) bool {
	if a.IsClosed() != b.IsClosed() || a.Values().Len() != b.Values().Len() {
		return false
	}
	for i := range a.Values().Len() {
		inA := a.Values().Get(i)
		inB := b.Values().ByName(inA.Name())
		if inB == nil || inA.Number() != inB.Number() {
			return false
		}
	}
	return true
}
