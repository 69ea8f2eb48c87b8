// A gRPC server of grpc-js. Its messages are plain text, so that it needs no protoc.
"use strict";

const grpc = require("@grpc/grpc-js");

const encode = (text) => Buffer.from(text);
const decode = (bytes) => bytes.toString();
const codecs = { requestSerialize: encode, requestDeserialize: decode, responseSerialize: encode, responseDeserialize: decode };
const method = (name, responseStream) => ({ path: `/tests.Text/${name}`, requestStream: false, responseStream, ...codecs });

const server = new grpc.Server();
server.addService(
  { Repeat: method("Repeat", false), Fail: method("Fail", false), Split: method("Split", true) },
  {
    Repeat: (call, respond) => respond(null, call.request.repeat(Number(call.metadata.get("x-times")[0]))),
    Fail: (call, respond) => respond({ code: grpc.status.NOT_FOUND, details: `${call.request} is not here` }),
    // Sends every word as a message, and then a trailer.
    Split(call) {
      for (const word of call.request.split(" ")) call.write(word);
      const trailers = new grpc.Metadata();
      trailers.set("x-words", String(call.request.split(" ").length));
      call.end(trailers);
    },
  },
);
server.bindAsync(`127.0.0.1:${process.argv[2]}`, grpc.ServerCredentials.createInsecure(), (error) => {
  if (error) throw error;
});
