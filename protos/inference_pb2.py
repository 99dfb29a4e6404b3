"""Messages of inference.proto. Written by protos/generate.py; do not edit."""

from protos import private_pool

DESCRIPTOR = private_pool.load_file(
    b'\n\x0finference.proto\x12\tinference"\x13\n\x11ServerLiveRequest"(\n\x12ServerLiveResponse\x12'
    b'\x12\n\x04live\x18\x01 \x01(\x08R\x04live"\x14\n\x12ServerReadyRequest"+\n\x13ServerReadyResponse\x12\x14\n\x05read'
    b'y\x18\x01 \x01(\x08R\x05ready"A\n\x11ModelReadyRequest\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\t'
    b'R\x07version"*\n\x12ModelReadyResponse\x12\x14\n\x05ready\x18\x01 \x01(\x08R\x05ready"\x17\n\x15ServerMetadataR'
    b'equest"f\n\x16ServerMetadataResponse\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07v'
    b'ersion\x12\x1e\n\nextensions\x18\x03 \x03(\tR\nextensions"D\n\x14ModelMetadataRequest\x12\x12\n\x04name\x18\x01'
    b' \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07version"\xcf\x02\n\x15ModelMetadataResponse\x12\x12\n\x04name\x18\x01'
    b' \x01(\tR\x04name\x12\x1a\n\x08versions\x18\x02 \x03(\tR\x08versions\x12\x1a\n\x08platform\x18\x03 \x01(\tR\x08platform\x12G\n\x06in'
    b'puts\x18\x04 \x03(\x0b2/.inference.ModelMetadataResponse.TensorMetadataR\x06inputs\x12I\n\x07o'
    b'utputs\x18\x05 \x03(\x0b2/.inference.ModelMetadataResponse.TensorMetadataR\x07outputs\x1aV'
    b'\n\x0eTensorMetadata\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08datatype\x18\x02 \x01(\tR\x08datatype\x12\x14\n\x05shap'
    b'e\x18\x03 \x03(\x03R\x05shape"\xd7\x01\n\x0eInferParameter\x12\x1f\n\nbool_param\x18\x01 \x01(\x08H\x00R\tboolParam\x12!\n\x0bin'
    b't64_param\x18\x02 \x01(\x03H\x00R\nint64Param\x12#\n\x0cstring_param\x18\x03 \x01(\tH\x00R\x0bstringParam\x12#\n\x0cdo'
    b'uble_param\x18\x04 \x01(\x01H\x00R\x0bdoubleParam\x12#\n\x0cuint64_param\x18\x05 \x01(\x04H\x00R\x0buint64ParamB\x12\n\x10'
    b'parameter_choice"\xc3\x02\n\x13InferTensorContents\x12#\n\rbool_contents\x18\x01 \x03(\x08R\x0cboolCon'
    b'tents\x12!\n\x0cint_contents\x18\x02 \x03(\x05R\x0bintContents\x12%\n\x0eint64_contents\x18\x03 \x03(\x03R\rint64C'
    b"ontents\x12#\n\ruint_contents\x18\x04 \x03(\rR\x0cuintContents\x12'\n\x0fuint64_contents\x18\x05 \x03(\x04R\x0eu"
    b'int64Contents\x12#\n\rfp32_contents\x18\x06 \x03(\x02R\x0cfp32Contents\x12#\n\rfp64_contents\x18\x07 \x03('
    b'\x01R\x0cfp64Contents\x12%\n\x0ebytes_contents\x18\x08 \x03(\x0cR\rbytesContents"\x9d\x08\n\x11ModelInferReq'
    b'uest\x12\x1d\n\nmodel_name\x18\x01 \x01(\tR\tmodelName\x12#\n\rmodel_version\x18\x02 \x01(\tR\x0cmodelVersion'
    b'\x12\x0e\n\x02id\x18\x03 \x01(\tR\x02id\x12L\n\nparameters\x18\x04 \x03(\x0b2,.inference.ModelInferRequest.Param'
    b'etersEntryR\nparameters\x12E\n\x06inputs\x18\x05 \x03(\x0b2-.inference.ModelInferRequest.Inf'
    b'erInputTensorR\x06inputs\x12Q\n\x07outputs\x18\x06 \x03(\x0b27.inference.ModelInferRequest.Inf'
    b'erRequestedOutputTensorR\x07outputs\x12,\n\x12raw_input_contents\x18\x07 \x03(\x0cR\x10rawInputCo'
    b'ntents\x1a\xcd\x02\n\x10InferInputTensor\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08datatype\x18\x02 \x01(\tR\x08datat'
    b'ype\x12\x14\n\x05shape\x18\x03 \x03(\x03R\x05shape\x12]\n\nparameters\x18\x04 \x03(\x0b2=.inference.ModelInferRequ'
    b'est.InferInputTensor.ParametersEntryR\nparameters\x12:\n\x08contents\x18\x05 \x01(\x0b2\x1e.inf'
    b'erence.InferTensorContentsR\x08contents\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03ke'
    b'y\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.inference.InferParameterR\x05value:\x028\x01\x1a\xf3\x01\n\x1aInferRequeste'
    b'dOutputTensor\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12g\n\nparameters\x18\x02 \x03(\x0b2G.inference.ModelI'
    b'nferRequest.InferRequestedOutputTensor.ParametersEntryR\nparameters\x1aX\n\x0fPa'
    b'rametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.inference.InferParamete'
    b'rR\x05value:\x028\x01\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.infer'
    b'ence.InferParameterR\x05value:\x028\x01"\xdf\x05\n\x12ModelInferResponse\x12\x1d\n\nmodel_name\x18\x01 \x01('
    b'\tR\tmodelName\x12#\n\rmodel_version\x18\x02 \x01(\tR\x0cmodelVersion\x12\x0e\n\x02id\x18\x03 \x01(\tR\x02id\x12M\n\npar'
    b'ameters\x18\x04 \x03(\x0b2-.inference.ModelInferResponse.ParametersEntryR\nparameters'
    b'\x12I\n\x07outputs\x18\x05 \x03(\x0b2/.inference.ModelInferResponse.InferOutputTensorR\x07outp'
    b'uts\x12.\n\x13raw_output_contents\x18\x06 \x03(\x0cR\x11rawOutputContents\x1a\xd0\x02\n\x11InferOutputTenso'
    b'r\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08datatype\x18\x02 \x01(\tR\x08datatype\x12\x14\n\x05shape\x18\x03 \x03(\x03R\x05shape\x12'
    b'_\n\nparameters\x18\x04 \x03(\x0b2?.inference.ModelInferResponse.InferOutputTensor.Par'
    b'ametersEntryR\nparameters\x12:\n\x08contents\x18\x05 \x01(\x0b2\x1e.inference.InferTensorConten'
    b'tsR\x08contents\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.infer'
    b'ence.InferParameterR\x05value:\x028\x01\x1aX\n\x0fParametersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05v'
    b'alue\x18\x02 \x01(\x0b2\x19.inference.InferParameterR\x05value:\x028\x01"B\n\x12ModelConfigRequest\x12\x12'
    b'\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07version"E\n\x13ModelConfigResponse\x12.\n\x06c'
    b'onfig\x18\x01 \x01(\x0b2\x16.inference.ModelConfigR\x06config"\xb9\x01\n\x12ModelInstanceGroup\x12\x12\n\x04na'
    b'me\x18\x01 \x01(\tR\x04name\x12\x14\n\x05count\x18\x02 \x01(\x05R\x05count\x126\n\x04kind\x18\x04 \x01(\x0e2".inference.ModelInst'
    b'anceGroup.KindR\x04kind"A\n\x04Kind\x12\r\n\tKIND_AUTO\x10\x00\x12\x0c\n\x08KIND_GPU\x10\x01\x12\x0c\n\x08KIND_CPU\x10\x02\x12'
    b'\x0e\n\nKIND_MODEL\x10\x03"f\n\nModelInput\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x120\n\tdata_type\x18\x02 \x01(\x0e2\x13.i'
    b'nference.DataTypeR\x08dataType\x12\x12\n\x04dims\x18\x04 \x03(\x03R\x04dims"g\n\x0bModelOutput\x12\x12\n\x04name\x18\x01'
    b' \x01(\tR\x04name\x120\n\tdata_type\x18\x02 \x01(\x0e2\x13.inference.DataTypeR\x08dataType\x12\x12\n\x04dims\x18\x03 \x03'
    b'(\x03R\x04dims"\xaa\x02\n\x10ModelQueuePolicy\x12P\n\x0etimeout_action\x18\x01 \x01(\x0e2).inference.ModelQ'
    b'ueuePolicy.TimeoutActionR\rtimeoutAction\x12@\n\x1cdefault_timeout_microseconds\x18'
    b'\x02 \x01(\x04R\x1adefaultTimeoutMicroseconds\x124\n\x16allow_timeout_override\x18\x03 \x01(\x08R\x14allow'
    b'TimeoutOverride\x12$\n\x0emax_queue_size\x18\x04 \x01(\rR\x0cmaxQueueSize"&\n\rTimeoutAction\x12\n'
    b'\n\x06REJECT\x10\x00\x12\t\n\x05DELAY\x10\x01"\xe4\x02\n\x14ModelDynamicBatching\x120\n\x14preferred_batch_size\x18\x01'
    b' \x03(\x05R\x12preferredBatchSize\x12?\n\x1cmax_queue_delay_microseconds\x18\x02 \x01(\x04R\x19maxQueue'
    b"DelayMicroseconds\x12+\n\x11preserve_ordering\x18\x03 \x01(\x08R\x10preserveOrdering\x12'\n\x0fpriori"
    b'ty_levels\x18\x04 \x01(\x04R\x0epriorityLevels\x124\n\x16default_priority_level\x18\x05 \x01(\x04R\x14default'
    b'PriorityLevel\x12M\n\x14default_queue_policy\x18\x06 \x01(\x0b2\x1b.inference.ModelQueuePolicy'
    b'R\x12defaultQueuePolicy"3\n\x0eModelParameter\x12!\n\x0cstring_value\x18\x01 \x01(\tR\x0bstringValu'
    b'e"\xdb\x04\n\x0bModelConfig\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x1a\n\x08platform\x18\x02 \x01(\tR\x08platform\x12$\n\x0emax'
    b'_batch_size\x18\x04 \x01(\x05R\x0cmaxBatchSize\x12+\n\x05input\x18\x05 \x03(\x0b2\x15.inference.ModelInputR\x05i'
    b'nput\x12.\n\x06output\x18\x06 \x03(\x0b2\x16.inference.ModelOutputR\x06output\x12D\n\x0einstance_group\x18\x07'
    b' \x03(\x0b2\x1d.inference.ModelInstanceGroupR\rinstanceGroup\x124\n\x16default_model_file'
    b'name\x18\x08 \x01(\tR\x14defaultModelFilename\x12L\n\x10dynamic_batching\x18\x0b \x01(\x0b2\x1f.inference.M'
    b'odelDynamicBatchingH\x00R\x0fdynamicBatching\x12F\n\nparameters\x18\x0e \x03(\x0b2&.inference.M'
    b'odelConfig.ParametersEntryR\nparameters\x12\x18\n\x07backend\x18\x11 \x01(\tR\x07backend\x1aX\n\x0fPara'
    b'metersEntry\x12\x10\n\x03key\x18\x01 \x01(\tR\x03key\x12/\n\x05value\x18\x02 \x01(\x0b2\x19.inference.ModelParameterR'
    b'\x05value:\x028\x01B\x13\n\x11scheduling_choice"F\n\x16ModelStatisticsRequest\x12\x12\n\x04name\x18\x01 \x01(\tR'
    b'\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07version"V\n\x17ModelStatisticsResponse\x12;\n\x0bmodel_stat'
    b's\x18\x01 \x03(\x0b2\x1a.inference.ModelStatisticsR\nmodelStats"9\n\x11StatisticDuration\x12\x14\n\x05'
    b'count\x18\x01 \x01(\x04R\x05count\x12\x0e\n\x02ns\x18\x02 \x01(\x04R\x02ns"\xf2\x03\n\x0fInferStatistics\x126\n\x07success\x18\x01 \x01(\x0b2'
    b'\x1c.inference.StatisticDurationR\x07success\x120\n\x04fail\x18\x02 \x01(\x0b2\x1c.inference.Statist'
    b'icDurationR\x04fail\x122\n\x05queue\x18\x03 \x01(\x0b2\x1c.inference.StatisticDurationR\x05queue\x12A\n\r'
    b'compute_input\x18\x04 \x01(\x0b2\x1c.inference.StatisticDurationR\x0ccomputeInput\x12A\n\rcompu'
    b'te_infer\x18\x05 \x01(\x0b2\x1c.inference.StatisticDurationR\x0ccomputeInfer\x12C\n\x0ecompute_ou'
    b'tput\x18\x06 \x01(\x0b2\x1c.inference.StatisticDurationR\rcomputeOutput\x129\n\tcache_hit\x18\x07 \x01'
    b'(\x0b2\x1c.inference.StatisticDurationR\x08cacheHit\x12;\n\ncache_miss\x18\x08 \x01(\x0b2\x1c.inferen'
    b'ce.StatisticDurationR\tcacheMiss"N\n\x0bMemoryUsage\x12\x12\n\x04type\x18\x01 \x01(\tR\x04type\x12\x0e\n\x02id'
    b'\x18\x02 \x01(\x03R\x02id\x12\x1b\n\tbyte_size\x18\x03 \x01(\x04R\x08byteSize"\x80\x02\n\x14InferBatchStatistics\x12\x1d\n\nbatc'
    b'h_size\x18\x01 \x01(\x04R\tbatchSize\x12A\n\rcompute_input\x18\x02 \x01(\x0b2\x1c.inference.StatisticDura'
    b'tionR\x0ccomputeInput\x12A\n\rcompute_infer\x18\x03 \x01(\x0b2\x1c.inference.StatisticDurationR'
    b'\x0ccomputeInfer\x12C\n\x0ecompute_output\x18\x04 \x01(\x0b2\x1c.inference.StatisticDurationR\rcom'
    b'puteOutput"\xfa\x02\n\x0fModelStatistics\x12\x12\n\x04name\x18\x01 \x01(\tR\x04name\x12\x18\n\x07version\x18\x02 \x01(\tR\x07ver'
    b"sion\x12%\n\x0elast_inference\x18\x03 \x01(\x04R\rlastInference\x12'\n\x0finference_count\x18\x04 \x01(\x04R\x0ein"
    b"ferenceCount\x12'\n\x0fexecution_count\x18\x05 \x01(\x04R\x0eexecutionCount\x12C\n\x0finference_stats"
    b'\x18\x06 \x01(\x0b2\x1a.inference.InferStatisticsR\x0einferenceStats\x12@\n\x0bbatch_stats\x18\x07 \x03(\x0b2'
    b'\x1f.inference.InferBatchStatisticsR\nbatchStats\x129\n\x0cmemory_usage\x18\x08 \x03(\x0b2\x16.inf'
    b'erence.MemoryUsageR\x0bmemoryUsage*\xfa\x01\n\x08DataType\x12\x10\n\x0cTYPE_INVALID\x10\x00\x12\r\n\tTYPE_B'
    b'OOL\x10\x01\x12\x0e\n\nTYPE_UINT8\x10\x02\x12\x0f\n\x0bTYPE_UINT16\x10\x03\x12\x0f\n\x0bTYPE_UINT32\x10\x04\x12\x0f\n\x0bTYPE_UINT64\x10\x05'
    b'\x12\r\n\tTYPE_INT8\x10\x06\x12\x0e\n\nTYPE_INT16\x10\x07\x12\x0e\n\nTYPE_INT32\x10\x08\x12\x0e\n\nTYPE_INT64\x10\t\x12\r\n\tTYPE_'
    b'FP16\x10\n\x12\r\n\tTYPE_FP32\x10\x0b\x12\r\n\tTYPE_FP64\x10\x0c\x12\x0f\n\x0bTYPE_STRING\x10\r\x12\r\n\tTYPE_BF16\x10\x0e2\xa8\x05\n'
    b'\x14GRPCInferenceService\x12K\n\nServerLive\x12\x1c.inference.ServerLiveRequest\x1a\x1d.infe'
    b'rence.ServerLiveResponse"\x00\x12N\n\x0bServerReady\x12\x1d.inference.ServerReadyRequest'
    b'\x1a\x1e.inference.ServerReadyResponse"\x00\x12K\n\nModelReady\x12\x1c.inference.ModelReadyR'
    b'equest\x1a\x1d.inference.ModelReadyResponse"\x00\x12W\n\x0eServerMetadata\x12 .inference.Se'
    b'rverMetadataRequest\x1a!.inference.ServerMetadataResponse"\x00\x12T\n\rModelMetadat'
    b'a\x12\x1f.inference.ModelMetadataRequest\x1a .inference.ModelMetadataResponse"\x00\x12N'
    b'\n\x0bModelConfig\x12\x1d.inference.ModelConfigRequest\x1a\x1e.inference.ModelConfigResp'
    b'onse"\x00\x12Z\n\x0fModelStatistics\x12!.inference.ModelStatisticsRequest\x1a".inference'
    b'.ModelStatisticsResponse"\x00\x12K\n\nModelInfer\x12\x1c.inference.ModelInferRequest\x1a\x1d'
    b'.inference.ModelInferResponse"\x00b\x06proto3',
    'inference.proto',
)

_classes = private_pool.message_classes(DESCRIPTOR, __name__)
ServerLiveRequest = _classes['ServerLiveRequest']
ServerLiveResponse = _classes['ServerLiveResponse']
ServerReadyRequest = _classes['ServerReadyRequest']
ServerReadyResponse = _classes['ServerReadyResponse']
ModelReadyRequest = _classes['ModelReadyRequest']
ModelReadyResponse = _classes['ModelReadyResponse']
ServerMetadataRequest = _classes['ServerMetadataRequest']
ServerMetadataResponse = _classes['ServerMetadataResponse']
ModelMetadataRequest = _classes['ModelMetadataRequest']
ModelMetadataResponse = _classes['ModelMetadataResponse']
InferParameter = _classes['InferParameter']
InferTensorContents = _classes['InferTensorContents']
ModelInferRequest = _classes['ModelInferRequest']
ModelInferResponse = _classes['ModelInferResponse']
ModelConfigRequest = _classes['ModelConfigRequest']
ModelConfigResponse = _classes['ModelConfigResponse']
ModelInstanceGroup = _classes['ModelInstanceGroup']
ModelInput = _classes['ModelInput']
ModelOutput = _classes['ModelOutput']
ModelQueuePolicy = _classes['ModelQueuePolicy']
ModelDynamicBatching = _classes['ModelDynamicBatching']
ModelParameter = _classes['ModelParameter']
ModelConfig = _classes['ModelConfig']
ModelStatisticsRequest = _classes['ModelStatisticsRequest']
ModelStatisticsResponse = _classes['ModelStatisticsResponse']
StatisticDuration = _classes['StatisticDuration']
InferStatistics = _classes['InferStatistics']
MemoryUsage = _classes['MemoryUsage']
InferBatchStatistics = _classes['InferBatchStatistics']
ModelStatistics = _classes['ModelStatistics']
