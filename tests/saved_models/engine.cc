// TensorFlow Serving's engine without the server: loads an export and runs requests.
//
//   engine DIR LIBRARIES OUTPUT REQUEST...
//
// DIR is the directory of a version. LIBRARIES are the libraries of tensorflow_text's operations,
// separated by commas. Each REQUEST is a file with a PredictRequest. The answer is written to
// OUTPUT/NAME.answer as a RunStepResponse, whose bytes are a PredictResponse without model_spec.
// The program replays the warm-up requests first, and prints a line of JSON after the first answer.

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/cc/saved_model/loader.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor.pb.h"
#include "tensorflow/core/lib/io/record_reader.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/protobuf/master.pb.h"
#include "tensorflow/core/public/session.h"
#include "tensorflow/core/public/session_options.h"

namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

[[noreturn]] void Fail(const std::string& message) {
  std::cerr << message << std::endl;
  std::_Exit(1);
}

template <typename Status>
void Check(const Status& status, const std::string& what) {
  if (!status.ok()) Fail(what + ": " + status.ToString());
}

// === Messages of TensorFlow Serving, which TensorFlow does not define ===

// The (number, content) of fields that are strings, bytes or messages, in order.
using Fields = std::vector<std::pair<int, std::string>>;

uint64_t ReadVarint(const std::string& message, size_t* at) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (*at >= message.size()) Fail("a message ends within a number");
    const unsigned char byte = message[(*at)++];
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  return value;
}

Fields ReadFields(const std::string& message) {
  Fields fields;
  for (size_t at = 0; at < message.size();) {
    const uint64_t tag = ReadVarint(message, &at);
    switch (tag & 7) {
      case 0:
        ReadVarint(message, &at);
        break;
      case 1:
        at += 8;
        break;
      case 2: {
        const uint64_t size = ReadVarint(message, &at);
        if (size > message.size() - at) Fail("a message ends within a field");
        fields.emplace_back(static_cast<int>(tag >> 3), message.substr(at, size));
        at += size;
        break;
      }
      case 5:
        at += 4;
        break;
      default:
        Fail("a message has a field of an unknown kind");
    }
  }
  return fields;
}

struct Request {
  std::string name;  // name of the file
  std::string signature = "serving_default";
  std::vector<std::pair<std::string, tensorflow::Tensor>> inputs;
};

// PredictRequest: model_spec = 1 with signature_name = 3, map inputs = 2 of key = 1 and value = 2.
Request ParsePredictRequest(const std::string& bytes) {
  Request request;
  for (const auto& [number, content] : ReadFields(bytes)) {
    if (number == 1) {
      for (const auto& [part, text] : ReadFields(content)) {
        if (part == 3) request.signature = text;
      }
    } else if (number == 2) {
      std::string key;
      tensorflow::TensorProto value;
      for (const auto& [part, text] : ReadFields(content)) {
        if (part == 1) key = text;
        if (part == 2 && !value.ParseFromString(text)) Fail("no TensorProto: input " + key);
      }
      tensorflow::Tensor tensor;
      if (!tensor.FromProto(value)) Fail("no tensor: input " + key);
      request.inputs.emplace_back(key, tensor);
    }
  }
  return request;
}

// === The engine ===

class Engine {
 public:
  Engine(const std::string& directory, const std::string& libraries) {
    std::stringstream paths(libraries);
    for (std::string path; std::getline(paths, path, ',');) {
      void* handle = nullptr;
      Check(tensorflow::Env::Default()->LoadDynamicLibrary(path.c_str(), &handle), path);
    }
    Check(tensorflow::LoadSavedModel(tensorflow::SessionOptions(), tensorflow::RunOptions(),
                                     directory, {"serve"}, &bundle_),
          directory);
  }

  // Like TensorFlow Serving's Predict: tensors by the signature's names, and all outputs.
  absl::Status Run(const Request& request, tensorflow::RunStepResponse* answer) const {
    const auto& signatures = bundle_.meta_graph_def.signature_def();
    const auto signature = signatures.find(request.signature);
    if (signature == signatures.end()) {
      return absl::NotFoundError("no signature " + request.signature);
    }
    std::vector<std::pair<std::string, tensorflow::Tensor>> inputs;
    for (const auto& [key, tensor] : request.inputs) {
      const auto info = signature->second.inputs().find(key);
      if (info == signature->second.inputs().end()) return absl::NotFoundError("no input " + key);
      inputs.emplace_back(info->second.name(), tensor);
    }
    std::vector<std::string> keys, names;
    for (const auto& [key, info] : signature->second.outputs()) {
      keys.push_back(key);
      names.push_back(info.name());
    }
    tensorflow::RunOptions options;
    options.set_timeout_in_ms(-1);
    std::vector<tensorflow::Tensor> outputs;
    tensorflow::RunMetadata metadata;
    const absl::Status status =
        bundle_.session->Run(options, inputs, names, {}, &outputs, &metadata);
    if (!status.ok()) return status;
    for (size_t i = 0; i < outputs.size(); ++i) {
      auto* entry = answer->add_tensor();
      entry->set_name(keys[i]);
      outputs[i].AsProtoField(entry->mutable_tensor());
    }
    return status;
  }

  // Replays the warm-up requests as TensorFlow Serving does, and returns their number.
  int WarmUp(const std::string& directory) const {
    const std::string path = directory + "/assets.extra/tf_serving_warmup_requests";
    if (!tensorflow::Env::Default()->FileExists(path).ok()) return 0;
    std::unique_ptr<tensorflow::RandomAccessFile> file;
    Check(tensorflow::Env::Default()->NewRandomAccessFile(path, &file), path);
    tensorflow::io::SequentialRecordReader reader(file.get());
    int count = 0;
    for (tensorflow::tstring record; reader.ReadRecord(&record).ok();) {
      // PredictionLog: predict_log = 6 with request = 1.
      for (const auto& [number, log] : ReadFields(std::string(record))) {
        if (number != 6) continue;
        for (const auto& [part, bytes] : ReadFields(log)) {
          if (part != 1) continue;
          tensorflow::RunStepResponse answer;
          Check(Run(ParsePredictRequest(bytes), &answer), path);
          ++count;
        }
      }
    }
    return count;
  }

 private:
  tensorflow::SavedModelBundle bundle_;
};

std::vector<Request> ReadRequests(int count, char** paths) {
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    std::ifstream file(paths[i], std::ios::binary);
    if (!file) Fail(std::string(paths[i]) + " cannot be read");
    const std::string bytes((std::istreambuf_iterator<char>(file)), {});
    requests.push_back(ParsePredictRequest(bytes));
    const std::string path = paths[i];
    requests.back().name = path.substr(path.rfind('/') + 1);
  }
  return requests;
}

void Answer(const Engine& engine, const std::vector<Request>& requests, const std::string& folder) {
  for (const Request& request : requests) {
    tensorflow::RunStepResponse answer;
    Check(engine.Run(request, &answer), request.name);
    std::ofstream file(folder + "/" + request.name + ".answer", std::ios::binary);
    if (!answer.SerializeToOstream(&file)) Fail(folder + " cannot be written");
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc <= 4) Fail("engine DIR LIBRARIES OUTPUT REQUEST...");
  const auto requests = ReadRequests(argc - 4, argv + 4);
  const auto begin = Clock::now();
  const Engine engine(argv[1], argv[2]);
  const double loading = SecondsSince(begin);
  const int warm_up_requests = engine.WarmUp(argv[1]);
  const double warm_up = SecondsSince(begin) - loading;
  tensorflow::RunStepResponse answer;
  const auto sent = Clock::now();
  Check(engine.Run(requests[0], &answer), requests[0].name);
  std::printf(
      "{\"loading_seconds\": %.3f, \"warm_up_seconds\": %.3f, \"warm_up_requests\": %d, "
      "\"first_answer_seconds\": %.3f}\n",
      loading, warm_up, warm_up_requests, SecondsSince(sent));
  std::fflush(stdout);
  Answer(engine, requests, argv[3]);
  // The libraries of the wheel do not support destruction at exit.
  std::_Exit(0);
}
